// What the release build does, as the tests need it: joins the modules of the manifest into one script by
// dropping import lines and the word `export`. Kept this simple on purpose; the server's build.rs does the
// same, and the tests hold the sources to the rules that make it possible.

import { readFileSync } from 'node:fs';

const root = new URL('../', import.meta.url);

export function manifest() {
  const lines = readFileSync(new URL('manifest.txt', root), 'utf8').split('\n').map((line) => line.trim()).filter((line) => line && !line.startsWith('#'));
  return { js: lines.filter((line) => line.endsWith('.js')), css: lines.filter((line) => line.endsWith('.css')) };
}

export const source = (name) => readFileSync(new URL(name, root), 'utf8');

export function bundleScript() {
  return manifest().js.map((name) => source(name).replace(/^import \{[^}]*\} from '[^']+';\n/gm, '').replace(/^export /gm, '')).join('\n');
}

export const bundleStyle = () => manifest().css.map(source).join('\n');
