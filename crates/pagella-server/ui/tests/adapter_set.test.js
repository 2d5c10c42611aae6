// The default set of adapters, as the model's dialog changes it.

import test from 'node:test';
import assert from 'node:assert/strict';
import { readScale, withAdapter } from '../models/adapter_set.js';

test('a scale is a number up to eight, in either notation', () => {
  for (const [text, scale] of [['1', 1], [' -0.5 ', -0.5], ['0,25', 0.25], ['0', 0], ['8', 8], ['1e-3', 0.001]]) assert.equal(readScale(text), scale);
  for (const text of ['', ' ', 'x', '8.1', '-9', 'Infinity', 'NaN', '1 2', null, undefined]) assert.equal(readScale(text), null);
});

test('an adapter joins those of the default set, and replaces itself', () => {
  const cards = [
    { id: 'a', default: true, scaling: 0.5 }, { id: 'b', default: false, scaling: 1 }, { id: 'c', default: false, scaling: null },
  ];
  assert.deepEqual(withAdapter(cards, 'c', 2), { loras: [{ name: 'a', scaling: 0.5 }, { name: 'c', scaling: 2 }] });
  assert.deepEqual(withAdapter(cards, 'a', 1), { loras: [{ name: 'a', scaling: 1 }] });
  assert.deepEqual(withAdapter([], 'a', 1), { loras: [{ name: 'a', scaling: 1 }] });
});
