// Every generation parameter the page offers: the one list from which the panel, the request, import and
// the tests are made. `neutral` is the value that changes nothing (shown as "off" where `off` is set);
// `min`/`max` are the server's limits, `slider` the range worth dragging through.
// Kinds: number, int, bool, choice, text, list (one entry per line), ids (token ids), json, code.

export const SAMPLER_GROUPS = [
  ['length', 'Length'], ['basic', 'Basic'], ['truncation', 'Truncation'], ['temperature', 'Temperature variants'], ['penalties', 'Penalties'],
  ['dry', 'DRY'], ['xtc', 'XTC'], ['mirostat', 'Mirostat and adaptive'], ['stops', 'Stops and bans'], ['constraints', 'Constraints'],
  ['reasoning', 'Reasoning'], ['drafting', 'Drafting'], ['seed', 'Seed and guidance'],
];

const n = (group, name, neutral, min, max, step, slider, help, more) => ({ group, name, kind: 'number', neutral, min, max, step, slider, help, ...more });
const i = (group, name, neutral, min, max, step, slider, help, more) => ({ group, name, kind: 'int', neutral, min, max, step, slider, help, ...more });
const flag = (group, name, help, more) => ({ group, name, kind: 'bool', neutral: false, help, ...more });
const text = (group, name, kind, help, more) => ({ group, name, kind, neutral: null, help, ...more });
const OFF = { off: true };
const ANY = Number.MAX_SAFE_INTEGER;

export const SAMPLER_TABLE = [
  i('length', 'max_tokens', -1, -1, ANY, 1, [-1, 8192], 'Most tokens of one answer; −1 fills the context.', { offWord: 'no limit', ...OFF }),
  i('length', 'min_tokens', 0, 0, ANY, 1, [0, 1024], 'The answer does not end before this many tokens.', OFF),
  flag('length', 'ban_eos_token', 'The model cannot end its answer by itself.'),
  i('length', 'loop_detect_window', 0, 0, ANY, 1, [0, 2000], 'Ends the answer when its last tokens are one pattern repeated.', OFF),

  n('basic', 'temperature', 1, 0, 10, 0.05, [0, 2], 'Below 1 prefers likely words, above 1 unlikely ones; 0 always takes the likeliest.'),
  n('basic', 'top_p', 1, 0, 1, 0.01, [0, 1], 'Keeps the likeliest tokens whose probabilities add up to this.', OFF),
  n('basic', 'min_p', 0, 0, 1, 0.005, [0, 0.5], 'Drops tokens less likely than this share of the likeliest one.', OFF),
  i('basic', 'top_k', 0, -1, ANY, 1, [0, 200], 'Keeps this many of the likeliest tokens.', OFF),
  n('basic', 'repetition_penalty', 1, 0.01, 10, 0.01, [1, 1.5], 'Makes tokens that were already used less likely.', OFF),

  n('truncation', 'top_a', 0, 0, ANY, 0.01, [0, 1], 'Drops tokens below this times the square of the highest probability.', OFF),
  n('truncation', 'tfs', 1, 0, 1, 0.01, [0, 1], 'Tail-free sampling: cuts where the curve of probabilities flattens.', OFF),
  n('truncation', 'typical', 1, 0, 1, 0.01, [0, 1], 'Keeps tokens whose surprise is close to the expected one.', OFF),
  n('truncation', 'top_n_sigma', 0, 0, ANY, 0.1, [0, 5], 'Keeps tokens within this many standard deviations of the highest score.', OFF),
  n('truncation', 'skew', 0, -5, 5, 0.05, [-2, 2], 'Shifts the draw towards likely (negative) or unlikely (positive) tokens.', OFF),

  flag('temperature', 'temperature_last', 'Applies temperature after the truncation steps.'),
  n('temperature', 'min_temp', null, 0, ANY, 0.05, [0, 2], 'Dynamic temperature: the value when the model is sure.', OFF),
  n('temperature', 'max_temp', null, 0, ANY, 0.05, [0, 4], 'Dynamic temperature: the value when the model is unsure.', OFF),
  n('temperature', 'temp_exponent', 1, 0, ANY, 0.05, [0, 3], 'Dynamic temperature: the curve between both values.'),
  n('temperature', 'smoothing_factor', 0, 0, ANY, 0.01, [0, 1], 'Quadratic sampling: bends scores around the highest one.', OFF),
  n('temperature', 'smoothing_curve', 1, 0, ANY, 0.05, [1, 3], 'The steepness of quadratic sampling.'),

  n('penalties', 'frequency_penalty', 0, -10, 10, 0.05, [-2, 2], 'Lowers a token each time it was used.', OFF),
  n('penalties', 'presence_penalty', 0, -10, 10, 0.05, [-2, 2], 'Lowers a token once it was used.', OFF),
  i('penalties', 'penalty_range', -1, -1, ANY, 1, [-1, 8192], 'How many of the last tokens count as used; −1 is all.', { offWord: 'all' }),
  i('penalties', 'repetition_decay', 0, 0, ANY, 1, [0, 2048], 'Fades the penalties out over this many tokens.', OFF),
  { group: 'penalties', name: 'penalty_scope', kind: 'choice', choices: ['all', 'output', 'prompt'], neutral: null, help: 'Which text counts as used.' },

  n('dry', 'dry_multiplier', 0, 0, ANY, 0.05, [0, 2], 'Strength of the penalty on repeating whole sequences.', OFF),
  n('dry', 'dry_base', 1.75, 0, ANY, 0.05, [1, 4], 'How fast the penalty grows with the length of the repetition.'),
  i('dry', 'dry_allowed_length', 2, 0, ANY, 1, [0, 20], 'Repetitions up to this many tokens are free.'),
  i('dry', 'dry_range', 0, -1, ANY, 1, [0, 8192], 'How many of the last tokens are searched; 0 is all.', { offWord: 'all' }),
  i('dry', 'dry_max_ngram', 20, 1, 1024, 1, [1, 64], 'The longest repetition looked for.'),
  text('dry', 'dry_sequence_breakers', 'list', 'Texts across which nothing counts as repeated, one per line.'),

  n('xtc', 'xtc_probability', 0, 0, 1, 0.01, [0, 1], 'How often the likeliest choices are left out.', OFF),
  n('xtc', 'xtc_threshold', 0.1, 0, 1, 0.01, [0, 0.5], 'What counts as a likely choice.'),

  { group: 'mirostat', name: 'mirostat_mode', kind: 'choice', choices: [0, 2], labels: ['off', '2'], neutral: 0, help: 'Steers the surprise of the text to a target.' },
  n('mirostat', 'mirostat_tau', 1.5, 0.01, ANY, 0.1, [0.1, 10], 'Mirostat: the target.'),
  n('mirostat', 'mirostat_eta', 0.1, 0.001, ANY, 0.01, [0.01, 1], 'Mirostat: how fast it steers.'),
  n('mirostat', 'adaptive_target', 1, 0, 1, 0.01, [0, 1], 'Prefers tokens near this probability.', OFF),
  n('mirostat', 'adaptive_decay', 0.9, 0, 1, 0.01, [0, 1], 'How long the adaptive target remembers.'),

  text('stops', 'stop', 'list', 'Ends the answer before any of these texts, one per line.'),
  flag('stops', 'include_stop_str_in_output', 'Keeps the stop text in the answer.'),
  text('stops', 'banned_strings', 'list', 'Texts the answer must not contain, one per line; the model steps back and tries again.'),
  text('stops', 'banned_tokens', 'ids', 'Token ids that are never chosen, separated by commas.'),
  text('stops', 'allowed_tokens', 'ids', 'Only these token ids may be chosen, separated by commas.'),
  text('stops', 'logit_bias', 'json', 'Adds to the score of tokens: {"id": bias}.'),
  flag('stops', 'token_healing', 'Lets the first token complete a word the prompt broke off.'),

  text('constraints', 'json_schema', 'json', 'The answer is JSON of this schema.', { exclusive: 'constraint' }),
  text('constraints', 'regex_pattern', 'code', 'The answer matches this regular expression.', { exclusive: 'constraint' }),
  text('constraints', 'grammar_string', 'code', 'The answer follows this grammar (GBNF or Lark).', { exclusive: 'constraint' }),

  { group: 'reasoning', name: 'enable_thinking', kind: 'choice', choices: [true, false], labels: ['on', 'off'], neutral: null, help: 'Asks the model to think first, or not to.', chatOnly: true },
  { group: 'reasoning', name: 'reasoning_effort', kind: 'choice', choices: ['minimal', 'low', 'medium', 'high'], neutral: null, help: 'How much the model should think, if it knows levels.', chatOnly: true },
  i('reasoning', 'reasoning_budget_tokens', -1, -1, ANY, 1, [-1, 16384], 'Thinking is closed after this many tokens.', { chatOnly: true, ...OFF }),

  i('drafting', 'draft_tokens', null, 0, 32, 1, [0, 16], 'Tokens drafted ahead per step; 0 switches drafting off. Never changes the text.', { sendAs: (v) => ({ draft: v === 0 ? false : { tokens: v } }) }),

  i('seed', 'seed', -1, -ANY, ANY, 1, null, 'The same seed, settings and prompt give the same text; −1 is random.', { offWord: 'random' }),
  n('seed', 'cfg_scale', null, -10, 10, 0.1, [-2, 4], 'Guidance against the negative prompt.', OFF),
  text('seed', 'negative_prompt', 'code', 'What guidance steers away from.'),
  i('seed', 'priority', 0, -100, 100, 1, [-100, 100], 'Requests with a higher number start first.'),
];

export const samplerByName = new Map(SAMPLER_TABLE.map((entry) => [entry.name, entry]));
