// No sentence is missing, none is left over, and values find their place.

import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { say, wordKeys } from '../page/words.js';

const root = new URL('../', import.meta.url);
const sources = readdirSync(root, { recursive: true }).filter((name) => name.endsWith('.js') && !name.startsWith('tests')).map((name) => readFileSync(new URL(name, root), 'utf8'));

test('every key in a say() call has a sentence', () => {
  const known = new Set(wordKeys());
  for (const source of sources) for (const [, key] of source.matchAll(/say\('([\w.]+)'/g)) assert.ok(known.has(key), key);
});

test('every sentence is used', () => {
  const all = sources.filter((source) => !source.includes('const WORDS')).join('\n');
  const composed = [...all.matchAll(/say\(`([\w.]+)\.\$\{/g)].map(([, start]) => `${start}.`);
  for (const key of wordKeys()) {
    assert.ok(all.includes(`'${key}'`) || composed.some((start) => key.startsWith(start)), `${key} is not used`);
  }
});

test('values and plurals', () => {
  assert.equal(say('deleted.messages', { n: 1 }), '1 message deleted');
  assert.equal(say('deleted.messages', { n: 3 }), '3 messages deleted');
  assert.equal(say('no.such.key'), 'no.such.key');
});
