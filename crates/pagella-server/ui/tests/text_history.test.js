// The notebook's undo: a generation is one step, typing runs are one step, spans follow edits.

import test from 'node:test';
import assert from 'node:assert/strict';
import { TextHistory, difference, shiftSpans } from '../notebook/text_history.js';

const at = (text) => ({ text, start: 0, end: 0, spans: [] });

test('one undo takes a whole generation back, redo brings it again', () => {
  const history = new TextHistory();
  history.step(at('Once'));
  assert.equal(history.undo(at('Once upon a time')).text, 'Once');
  assert.equal(history.redo(at('Once')).text, 'Once upon a time');
  assert.equal(history.undo(at('Once upon a time')).text, 'Once');
  assert.equal(history.undo(at('Once')), null);
});

test('quick typing is one step, a pause starts another', () => {
  const history = new TextHistory();
  history.typed(at(''), 1000);
  history.typed(at('a'), 1100);
  history.typed(at('ab'), 5000);
  assert.equal(history.undo(at('abc')).text, 'ab');
  assert.equal(history.undo(at('ab')).text, '');
});

test('spans move with text before them and lose what is edited', () => {
  assert.deepEqual(shiftSpans([[10, 20]], 0, 0, 3), [[13, 23]]);
  assert.deepEqual(shiftSpans([[10, 20]], 25, 26, 0), [[10, 20]]);
  assert.deepEqual(shiftSpans([[10, 20]], 14, 16, 5), [[10, 14], [19, 23]]);
  assert.deepEqual(shiftSpans([[10, 20]], 5, 25, 1), []);
});

test('the difference of two texts is where they differ', () => {
  assert.deepEqual(difference('abc', 'abXc'), { start: 2, end: 2, length: 1 });
  assert.deepEqual(difference('aaa', 'aa'), { start: 2, end: 3, length: 0 });
  assert.deepEqual(difference('', 'x'), { start: 0, end: 0, length: 1 });
  for (const [a, b] of [['hello world', 'hello big world'], ['xyz', ''], ['same', 'same']]) {
    const { start, end, length } = difference(a, b);
    assert.equal(a.slice(0, start) + b.slice(start, start + length) + a.slice(end), b);
  }
});
