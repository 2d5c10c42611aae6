// Highlighting: tokens always add up to the line, kinds of a few known lines, state across lines.

import test from 'node:test';
import assert from 'node:assert/strict';
import { highlightLine } from '../render/highlight.js';
import { CODE_LANGUAGES, knownLanguage } from '../render/languages.js';

const kinds = (language, line, state = null) => highlightLine(language, line, state).tokens.filter(([kind]) => kind).map(([kind, text]) => `${kind}:${text.trim()}`);

test('kinds in known lines', () => {
  assert.deepEqual(kinds('rust', 'pub fn f(x: &\'a str) -> u32 { g("a\\"b", \'c\') } // end'), ['word:pub', 'word:fn', 'call:f', 'type:str', 'type:u32', 'call:g', 'string:"a\\"b"', "string:'c'", 'comment:// end']);
  assert.deepEqual(kinds('py', 'x = f"a" if None else 0x1F # c'), ['string:f"a"', 'word:if', 'value:None', 'word:else', 'number:0x1F', 'comment:# c']);
  assert.deepEqual(kinds('json', '{"a": [1, true, "b"]}'), ['key:"a"', 'number:1', 'value:true', 'string:"b"']);
  assert.deepEqual(kinds('html', '<a href="x">t</a>'), ['tag:<a', 'key:href', 'string:"x"', 'tag:>', 'tag:</a>']);
  assert.deepEqual(kinds('diff', '+added'), ['added:+added']);
  assert.deepEqual(kinds('yaml', 'key: "v" # c'), ['key:key', 'string:"v"', 'comment:# c']);
  assert.deepEqual(kinds('sql', 'SELECT count(*) FROM t'), ['word:SELECT', 'call:count', 'word:FROM']);
  assert.deepEqual(kinds('bash', 'ls -la "$HOME" # c'), ['key:-la', 'string:"$HOME"', 'comment:# c']);
});

test('comments and strings continue on the next line', () => {
  const first = highlightLine('c', 'a /* b', null);
  assert.deepEqual(kinds('c', 'c */ int', first.state), ['comment:c */', 'type:int']);
  const doc = highlightLine('python', 'x = """a', null);
  assert.deepEqual(kinds('python', 'b""" if', doc.state), ['string:b"""', 'word:if']);
  assert.equal(highlightLine('c', '"open', null).state, null);
});

test('no character is lost, in any language, whatever the text', () => {
  const lines = ['', '"', "'", '`', '/*', '*/', '<!--', '-->', '<a b="', '#', '//', '--[[', ']]', '\\', '"\\', '$', '@', '0x', '1.2e', 'é"ü', '{-', '"""', "'''", '<', '&', '-', '--', '=', 'key: v', '[s]', '😀', 'a'.repeat(3000)];
  for (const language of [...Object.keys(CODE_LANGUAGES), 'markup', 'diff', 'markdown', 'unknown']) {
    let state = null;
    for (const a of lines) for (const b of lines) {
      const line = a + b;
      const result = highlightLine(language, line, state);
      assert.equal(result.tokens.map(([, text]) => text).join(''), line, language);
      state = result.state;
    }
  }
});

test('names of object properties are not languages', () => {
  for (const name of ['constructor', '__proto__', 'toString', '']) assert.equal(knownLanguage(name), null);
});
