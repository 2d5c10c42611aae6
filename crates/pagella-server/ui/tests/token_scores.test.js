// Tokens stand where their text stands, whatever stands for no text; what an edit voids is not shown.

import test from 'node:test';
import assert from 'node:assert/strict';
import { readLogprobs } from '../net/answer_fold.js';
import { TokenScores, placePieces, placeTokens } from '../notebook/token_scores.js';

/** What the server answers for a prompt with `echo`: the token that begins a text comes first and is no text. */
const echoed = readLogprobs({
  tokens: ['<|endoftext|>', 'Once', ' upon', ' a', ' time'],
  token_logprobs: [null, -3, -0.1, -0.2, -0.9],
  top_logprobs: [null, { Once: -3 }, { ' upon': -0.1 }, { ' a': -0.2 }, { ' time': -0.9 }],
  text_offset: [0, 0, 4, 9, 11],
});

const pieces = (text, tokens) => tokens.map(({ at, end }) => text.slice(at, end));

test('scoring a text scores every token of it, though the first one is no text', () => {
  const text = 'Once upon a';
  const placed = placeTokens(echoed, text);
  assert.deepEqual(pieces(text, placed), ['', 'Once', ' upon', ' a'], 'the token that was written for the request is left out');
  const scores = new TokenScores();
  scores.set(text, placed);
  assert.equal(scores.of(text).filter((token) => token.logprob !== null).length, 3);
});

test('offsets count characters, also those that need two units or two tokens', () => {
  const text = 'a🙂é.';
  const placed = placeTokens([{ offset: 0 }, { offset: 1 }, { offset: 2 }, { offset: 2 }, { offset: 3 }], text, 10);
  assert.deepEqual(placed.map(({ at, end }) => [at, end]), [[10, 11], [11, 13], [13, 13], [13, 14], [14, 15]]);
});

test('pieces of the tokenizer find their places, halves of characters included', () => {
  const text = 'a🙂b';
  const bytes = [...new TextEncoder().encode('🙂')];
  const placed = placePieces([0, 1, 2, 3, 4], ['<s>', 'a', bytes.slice(0, 2), bytes.slice(2), 'b'], text, 5);
  assert.deepEqual(placed.map(({ at, end }) => [at - 5, end - 5]), [[0, 0], [0, 1], [1, 1], [1, 3], [3, 4]]);
});

test('an edit voids the tokens behind it and keeps those before it', () => {
  const text = 'Once upon a time';
  const scores = new TokenScores();
  scores.set(text, placeTokens(echoed, text));
  assert.deepEqual(pieces(text, scores.of('Once upon b time')), ['', 'Once', ' upon']);
  scores.add('Once upon b cat', [{ at: 11, end: 15, logprob: -1 }]);
  assert.deepEqual(pieces('Once upon b cat', scores.of('Once upon b cat')), ['', 'Once', ' upon', ' cat']);
});
