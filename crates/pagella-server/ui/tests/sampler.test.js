// Values are checked against the server's list, sent only when changed, and explained. That the list is
// complete and consistent is tested where it is made, in the engine and in the route.

import test from 'node:test';
import assert from 'node:assert/strict';
import { SAMPLER_GROUPS, SAMPLER_TABLE, samplerByName, setSamplerTable } from '../sampler/sampler_table.js';
import { checkSampler, cleanSamplers, curlLine, escapeLine, isNeutral, samplerConflict, samplerFields, samplerOrigin } from '../sampler/sampler_values.js';

const number = (name, neutral, min, max, more) => ({ name, group: 'basic', kind: 'number', neutral, min, max, step: 0.01, slider: [min, max], off: [], help: 'Help.', ...more });
const list = {
  groups: [{ name: 'basic', title: 'Basic' }],
  parameters: [
    number('temperature', 1, 0, 10), number('top_p', 1, 0, 1, { off: [1, 0], off_word: 'off' }), number('min_temp', 0, 0, 100), number('max_temp', 0, 0, 100),
    number('adaptive_target', 1, 0, 1, { off: [1], off_word: 'off' }), { ...number('top_k', 0, 0, 100, { off: [0, -1], off_word: 'off' }), kind: 'int' },
    ...[['stop', 'list'], ['banned_tokens', 'ids'], ['json_schema', 'json', 'constraint'], ['regex_pattern', 'code', 'constraint']].map(([name, kind, exclusive]) => ({ name, group: 'basic', kind, help: 'Help.', exclusive })),
    { name: 'enable_thinking', group: 'basic', kind: 'bool', neutral: null, help: 'Help.', chat_only: true },
  ],
};
setSamplerTable(list);

test('the list of the server replaces the one before', () => {
  setSamplerTable(list);
  assert.deepEqual(SAMPLER_GROUPS, [['basic', 'Basic']]);
  assert.equal(SAMPLER_TABLE.length, list.parameters.length);
  assert.ok(samplerByName.get('enable_thinking').chatOnly && !samplerByName.get('stop').chatOnly);
  assert.equal(samplerByName.get('top_k').offWord, 'off');
});

test('values that mean off are values, and neutral', () => {
  const entry = samplerByName.get('top_k');
  assert.deepEqual(checkSampler(entry, -1), { value: -1 });
  assert.ok(isNeutral(entry, -1) && isNeutral(entry, 0) && !isNeutral(entry, 1));
  assert.ok(checkSampler(entry, -2).error);
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
  assert.deepEqual(samplerFields({ temperature: 0 }), { temperature: 0 });
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
