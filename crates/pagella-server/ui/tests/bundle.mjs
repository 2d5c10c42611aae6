// What the release build does, as the tests need it: joins the modules of the manifest into one script by
// dropping import lines, the word `export`, and comments that have lines of their own. Kept this simple on
// purpose; the server's build/join.rs does the same, and the tests hold the sources to the rules that make
// it possible. `node bundle.mjs script|style` prints the result.

import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const root = new URL('../', import.meta.url);

export function manifest() {
  const lines = readFileSync(new URL('manifest.txt', root), 'utf8').split('\n').map((line) => line.trim()).filter((line) => line && !line.startsWith('#'));
  return { js: lines.filter((line) => line.endsWith('.js')), css: lines.filter((line) => line.endsWith('.css')) };
}

export const source = (name) => readFileSync(new URL(name, root), 'utf8');

/** Lines that are neither empty nor comment, each with its end. */
export function codeLines(text) {
  let inComment = false;
  return text.split('\n').filter((line) => {
    const trimmed = line.trim();
    if (inComment || trimmed.startsWith('/*')) {
      inComment = !trimmed.endsWith('*/');
      return false;
    }
    return trimmed !== '' && !trimmed.startsWith('//');
  }).map((line) => `${line}\n`);
}

export function bundleScript() {
  const lines = manifest().js.flatMap((name) => codeLines(source(name)));
  return lines.filter((line) => !/^import \{.*\} from '/.test(line)).map((line) => line.replace(/^export /, '')).join('');
}

export const bundleStyle = () => manifest().css.flatMap((name) => codeLines(source(name))).join('');

if (import.meta.url === pathToFileURL(process.argv[1]).href) process.stdout.write(process.argv[2] === 'style' ? bundleStyle() : bundleScript());
