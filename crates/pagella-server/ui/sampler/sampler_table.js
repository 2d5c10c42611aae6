// The generation parameters that the page offers, as the server lists them: the one list from which the
// panel, the request and import are made. `neutral` is the value that changes nothing (shown as `offWord`
// where there is one); `min`/`max` are the server's limits, `slider` the range worth dragging through.
// Kinds: number, int, bool, choice, list (one entry per line), ids (token ids), json, code.

export const SAMPLER_GROUPS = [];
export const SAMPLER_TABLE = [];
export const samplerByName = new Map();

/** Takes the list of `v1/sampling/parameters`; the containers stay the same objects. */
export function setSamplerTable({ groups, parameters }) {
  SAMPLER_GROUPS.splice(0, SAMPLER_GROUPS.length, ...groups.map(({ name, title }) => [name, title]));
  SAMPLER_TABLE.splice(0, SAMPLER_TABLE.length, ...parameters.map(({ off_word, chat_only, ...entry }) => ({ ...entry, neutral: entry.neutral ?? null, offWord: off_word ?? null, chatOnly: Boolean(chat_only) })));
  samplerByName.clear();
  for (const entry of SAMPLER_TABLE) samplerByName.set(entry.name, entry);
}
