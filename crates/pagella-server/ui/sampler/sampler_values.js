// What a set of sampler values means: checks, the fields a request carries, where a value comes from.
// `values` holds only what the person changed; nothing else is ever sent. Pure.

import { SAMPLER_TABLE, samplerByName } from './sampler_table.js';

/** Checks one value; returns `{value}` or `{error}`. `undefined` as value means "not set". */
export function checkSampler(entry, raw) {
  if (raw === undefined || raw === null || raw === '') return { value: undefined };
  switch (entry.kind) {
    case 'number': case 'int': return checkNumber(entry, raw);
    case 'bool': return typeof raw === 'boolean' ? { value: raw } : { error: 'must be true or false' };
    case 'choice': return entry.choices.includes(raw) ? { value: raw } : { error: `must be one of ${entry.choices.join(', ')}` };
    case 'list': return checkList(raw);
    case 'ids': return checkIds(raw);
    case 'json': return checkJson(raw);
    default: return typeof raw === 'string' ? { value: raw } : { error: 'must be text' };
  }
}

function checkNumber(entry, raw) {
  const number = typeof raw === 'number' ? raw : Number(String(raw).replace('−', '-').replace(',', '.'));
  if (!Number.isFinite(number)) return { error: 'is not a number' };
  if (entry.kind === 'int' && !Number.isInteger(number)) return { error: 'must be a whole number' };
  if (entry.off?.includes(number)) return { value: number };
  if (number < entry.min) return { error: `must be at least ${entry.min}` };
  if (number > entry.max) return { error: `must be at most ${entry.max}` };
  return { value: number };
}

function checkList(raw) {
  const lines = Array.isArray(raw) ? raw : String(raw).split('\n').filter((line) => line !== '').map(unescapeLine);
  if (!lines.every((line) => typeof line === 'string' && line !== '')) return { error: 'must be lines of text' };
  if (lines.length > 256) return { error: 'has more than 256 lines' };
  return { value: lines.length ? lines : undefined };
}

/** In a one-line field a line break is written \n and a tab \t. */
const unescapeLine = (line) => line.replace(/\\(n|t|\\)/g, (_, c) => ({ n: '\n', t: '\t', '\\': '\\' })[c]);
export const escapeLine = (line) => line.replace(/[\\\n\t]/g, (c) => ({ '\n': '\\n', '\t': '\\t', '\\': '\\\\' })[c]);

function checkIds(raw) {
  const parts = Array.isArray(raw) ? raw : String(raw).split(/[\s,]+/).filter(Boolean).map(Number);
  if (!parts.every((id) => Number.isInteger(id) && id >= 0)) return { error: 'must be token ids' };
  return { value: parts.length ? parts : undefined };
}

function checkJson(raw) {
  if (typeof raw === 'object') return { value: raw };
  try {
    return { value: JSON.parse(raw) };
  } catch (error) {
    return { error: String(error.message) };
  }
}

/** The fields a request carries for these values. `route`: 'chat' or 'completions'. */
export function samplerFields(values, route = 'chat') {
  const fields = {};
  for (const entry of SAMPLER_TABLE) {
    const value = values[entry.name];
    if (value === undefined || (entry.chatOnly && route !== 'chat')) continue;
    fields[entry.name] = value;
  }
  return fields;
}

/** Two constraints at once are refused by the server: say so before sending. Returns names or null. */
export function samplerConflict(values) {
  const set = SAMPLER_TABLE.filter((entry) => entry.exclusive && values[entry.name] !== undefined).map((entry) => entry.name);
  if (set.length > 1) return set;
  return values.min_temp !== undefined && values.max_temp !== undefined && values.min_temp > values.max_temp ? ['min_temp', 'max_temp'] : null;
}

/**
 * The value in force and where it comes from: 'request', 'preset', 'model' or 'neutral'. A forced preset
 * beats the request, as on the server.
 */
export function samplerOrigin(entry, values, { preset = {}, model = {} } = {}) {
  const override = preset[entry.name];
  if (override?.force) return { value: override.override, origin: 'preset', forced: true };
  if (values[entry.name] !== undefined) return { value: values[entry.name], origin: 'request' };
  if (override) return { value: override.override, origin: 'preset' };
  if (model[entry.name] !== undefined && model[entry.name] !== null) return { value: model[entry.name], origin: 'model' };
  return { value: entry.neutral, origin: 'neutral' };
}

export const isNeutral = (entry, value) => value === entry.neutral || value === undefined || value === null || Boolean(entry.off?.includes(value));

/** Keeps what the table knows and what is in range; returns `{values, skipped}`. For imports. */
export function cleanSamplers(raw) {
  const values = {};
  const skipped = [];
  if (raw === null || typeof raw !== 'object' || Array.isArray(raw)) return { values, skipped };
  for (const [name, value] of Object.entries(raw)) {
    const entry = samplerByName.get(name);
    const checked = entry ? checkSampler(entry, value) : { error: 'unknown' };
    if (checked.error) skipped.push(name);
    else if (checked.value !== undefined) values[name] = checked.value;
  }
  return { values, skipped };
}

/** A command line that repeats the request. The key stays a variable: it must not end up in notes. */
export function curlLine(url, body) {
  const json = JSON.stringify(body, null, 2).replace(/'/g, "'\\''");
  return `curl ${url} \\\n  -H "Authorization: Bearer $PAGELLA_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d '${json}'`;
}
