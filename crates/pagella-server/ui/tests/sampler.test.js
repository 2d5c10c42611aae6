// The sampler table is complete and consistent; values are checked, sent only when changed, and explained.

import test from 'node:test';
import assert from 'node:assert/strict';
import { SAMPLER_GROUPS, SAMPLER_TABLE, samplerByName } from '../sampler/sampler_table.js';
import { checkSampler, cleanSamplers, curlLine, escapeLine, samplerConflict, samplerFields, samplerOrigin } from '../sampler/sampler_values.js';

test('every row is complete', () => {
  const groups = new Set(SAMPLER_GROUPS.map(([id]) => id));
  const seen = new Set();
  for (const entry of SAMPLER_TABLE) {
    assert.ok(groups.has(entry.group), entry.name);
    assert.ok(!seen.has(entry.name), `${entry.name} twice`);
    seen.add(entry.name);
    assert.match(entry.help, /^[A-Z].*[.:}]$/, entry.name);
    if (entry.slider) assert.ok(entry.slider[0] >= entry.min && entry.slider[1] <= entry.max, entry.name);
    if (entry.neutral !== null) assert.equal(checkSampler(entry, entry.neutral).error, undefined, `${entry.name}: its neutral value is out of range`);
  }
  for (const [id] of SAMPLER_GROUPS) assert.ok(SAMPLER_TABLE.some((entry) => entry.group === id), id);
});

test('values outside the limits are refused with a reason', () => {
  const check = (name, value) => checkSampler(samplerByName.get(name), value);
  assert.match(check('temperature', 11).error, /at most 10/);
  assert.match(check('top_k', 1.5).error, /whole/);
  assert.match(check('top_p', 'x').error, /number/);
  assert.match(check('banned_tokens', '1,a').error, /ids/);
  assert.ok(check('json_schema', '{').error);
  assert.deepEqual(check('temperature', '0,7'), { value: 0.7 });
  assert.deepEqual(check('stop', 'a\\n\nb'), { value: ['a\n', 'b'] });
  assert.deepEqual(check('stop', ['a\n']).value.map(escapeLine), ['a\\n']);
  assert.deepEqual(check('temperature', ''), { value: undefined });
});

test('only changed values are sent, in the shape of the wire', () => {
  assert.deepEqual(samplerFields({}), {});
  assert.deepEqual(samplerFields({ temperature: 0, draft_tokens: 0 }), { temperature: 0, draft: false });
  assert.deepEqual(samplerFields({ draft_tokens: 4 }), { draft: { tokens: 4 } });
  assert.deepEqual(samplerFields({ enable_thinking: true, top_p: 0.9 }, 'completions'), { top_p: 0.9 });
});

test('a value says where it comes from', () => {
  const entry = samplerByName.get('temperature');
  const sources = { preset: { temperature: { override: 0.8 } }, model: { temperature: 0.6 } };
  assert.deepEqual(samplerOrigin(entry, {}, {}), { value: 1, origin: 'neutral' });
  assert.deepEqual(samplerOrigin(entry, {}, { model: sources.model }), { value: 0.6, origin: 'model' });
  assert.deepEqual(samplerOrigin(entry, {}, sources), { value: 0.8, origin: 'preset' });
  assert.deepEqual(samplerOrigin(entry, { temperature: 0.1 }, sources), { value: 0.1, origin: 'request' });
  assert.deepEqual(samplerOrigin(entry, { temperature: 0.1 }, { preset: { temperature: { override: 0, force: true } } }), { value: 0, origin: 'preset', forced: true });
});

test('conflicts are named', () => {
  assert.equal(samplerConflict({ json_schema: {} }), null);
  assert.deepEqual(samplerConflict({ json_schema: {}, regex_pattern: 'a' }), ['json_schema', 'regex_pattern']);
  assert.deepEqual(samplerConflict({ min_temp: 2, max_temp: 1 }), ['min_temp', 'max_temp']);
});

test('imported values are cleaned', () => {
  assert.deepEqual(cleanSamplers({ temperature: 0.5, top_k: 'x', evil: 1, __proto__: { a: 1 } }), { values: { temperature: 0.5 }, skipped: ['top_k', 'evil'] });
  assert.deepEqual(cleanSamplers('x'), { values: {}, skipped: [] });
});

test('the command line quotes what a shell would eat and holds no key', () => {
  const line = curlLine('http://127.0.0.1/v1/chat/completions', { a: "it's" });
  assert.ok(line.includes("it'\\''s"));
  assert.ok(line.includes('$PAGELLA_KEY'));
});
