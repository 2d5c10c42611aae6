// The rules that let the release build join the sources, the size budgets, and the words that must not occur.

import test from 'node:test';
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join, posix } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { bundleScript, bundleStyle, codeLines, manifest, source } from './bundle.mjs';

const root = new URL('../', import.meta.url);
const RAW_BYTES_MAX = 450 * 1024;
const COMPRESSED_BYTES_MAX = 120 * 1024;

test('the manifest lists every source once, and each after what it imports', () => {
  const { js, css } = manifest();
  const present = readdirSync(root, { recursive: true }).map((name) => name.replaceAll('\\', '/')).filter((name) => !name.startsWith('tests') && !name.startsWith('node_modules'));
  assert.deepEqual([...js].sort(), present.filter((name) => name.endsWith('.js')).sort());
  assert.deepEqual([...css].sort(), present.filter((name) => name.endsWith('.css') && name !== 'app.css').sort());
  assert.deepEqual(css, [...source('app.css').matchAll(/url\('([^']+)'\)/g)].map(([, name]) => name));
  for (const [i, name] of js.entries()) {
    const text = source(name);
    const imports = [...text.matchAll(/^import \{[^}]*\} from '(\.[^']+)';$/gm)].map(([, path]) => posix.normalize(posix.join(posix.dirname(name), path)));
    assert.equal(imports.length, (text.match(/^import\b/gm) ?? []).length, `${name}: an import in another form`);
    assert.doesNotMatch(text, /\bimport\(|^export (default|\*|\{)|^import .*\bas\b/m, name);
    for (const path of imports) assert.ok(js.indexOf(path) >= 0 && js.indexOf(path) < i, `${name} imports ${path} too early`);
  }
});

test('the joined script is one valid module', () => {
  const file = join(mkdtempSync(join(tmpdir(), 'pagella-ui-')), 'app.mjs');
  writeFileSync(file, bundleScript());
  execFileSync(process.execPath, ['--check', file], { stdio: 'pipe' });
});

test('no line of a template looks like a comment', () => {
  for (const name of manifest().js) {
    // A template over several lines begins at the end of a line: what the build drops is not inside.
    for (const [, inside] of source(name).matchAll(/[(=,] ?`\n([^`]*)`/g)) {
      assert.equal(codeLines(inside).join(''), `${inside}\n`, name);
    }
    assert.doesNotMatch(source(name), /\\$/m, `${name}: a line that goes on`);
  }
});

test('sizes stay within their budgets', () => {
  const parts = [source('index.html'), bundleStyle(), bundleScript()].map((text) => Buffer.from(text));
  const sum = (sizes) => sizes.reduce((a, b) => a + b, 0);
  const raw = sum(parts.map((part) => part.length));
  const gzip = sum(parts.map((part) => gzipSync(part, { level: 9 }).length));
  const brotli = sum(parts.map((part) => brotliCompressSync(part).length));
  console.log(`# raw ${raw} bytes, gzip ${gzip}, brotli ${brotli}`);
  assert.ok(raw <= RAW_BYTES_MAX, `${raw} bytes`);
  assert.ok(gzip <= COMPRESSED_BYTES_MAX, `${gzip} bytes`);
});

test('nothing can turn text into markup, and nothing outside is named', () => {
  const text = bundleScript();
  for (const word of ['innerHTML', 'outerHTML', 'insertAdjacentHTML', 'document.write', 'new Function', 'eval(', 'setAttribute(\'style\'', 'DOMParser', 'createContextualFragment']) assert.ok(!text.includes(word), word);
  const addresses = [...(text + bundleStyle() + source('index.html')).matchAll(/(?:https?:)?\/\/[a-z0-9.-]+\.[a-z]{2,}/gi)].map(([address]) => address);
  assert.deepEqual(addresses.filter((address) => address !== 'http://www.w3.org'), []);
  assert.doesNotMatch(source('index.html'), /<style|style=|<script(?! type="module" src)|\son\w+=/);
});

test('every source opens with a comment, has at most 600 lines, and no file is dead', () => {
  for (const name of [...manifest().js, ...manifest().css]) {
    const text = source(name);
    assert.match(text, /^(\/\/ |\/\* )/, name);
    assert.ok(text.split('\n').length <= 600, name);
  }
  assert.ok(existsSync(new URL('index.html', root)) && readFileSync(new URL('manifest.txt', root), 'utf8').includes('index.html'));
});
