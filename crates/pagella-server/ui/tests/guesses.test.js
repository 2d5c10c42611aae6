// How guesses fared, as the engine view tells it.

import test from 'node:test';
import assert from 'node:assert/strict';
import { describeGuesses, shareGuessedRight } from '../engine/guesses.js';

test('guesses are told of once there are some', () => {
  assert.equal(shareGuessedRight({}), undefined);
  assert.equal(shareGuessedRight({ draft: { steps: 0, guessed: 0, accepted: 0 } }), undefined);
  const stats = { draft: { steps: 50, guessed: 170, accepted: 121 } };
  const share = shareGuessedRight(stats);
  assert.equal(describeGuesses(share, stats), '71 % right, 3.4 per step');
});

test('whatever is in the place of numbers is no gauge', () => {
  for (const draft of [null, 'x', 7, {}, { guessed: 'x', accepted: [] }]) assert.equal(shareGuessedRight({ draft }), undefined);
});
