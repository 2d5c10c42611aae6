// The form of load options for one model: defaults filled in, remembered per model, with the memory plan.

import { el, fill } from '../page/element.js';
import { afterQuiet } from '../page/cell.js';
import { button, checkbox, field, select, textInput } from '../page/controls.js';
import { settings } from '../page/settings.js';
import { say } from '../page/words.js';
import { getJson } from '../net/api.js';
import { memoryBars, memoryDevices } from './memory_bar.js';
import { loadModel, planLoad } from './model_load.js';

const CACHE_MODES = ['FP16', 'Q8', 'Q6', 'Q4', 'F8'];
const TOOL_FORMATS = ['', 'hermes', 'qwen3-coder', 'llama-3', 'pythonic', 'mistral', 'deepseek', 'glm', 'gemma', 'harmony'];

/** `[name, kind, choices]`; kinds: int, number, numbers, text, choice, flag. */
const LOAD_FIELDS = [
  ['max_seq_len', 'int'], ['cache_size', 'int'], ['cache_mode', 'choice', CACHE_MODES], ['chunk_size', 'int'], ['max_batch_size', 'int'],
  ['gpu_split', 'numbers'], ['tensor_parallel', 'flag'], ['rope_scale', 'number'], ['rope_alpha', 'text'], ['prompt_template', 'text'], ['tool_format', 'choice', TOOL_FORMATS], ['vision', 'flag'],
];

/** The options of the form's values; throws a sentence for a value that cannot be. */
export function loadOptions(model, values) {
  const options = { model_name: model };
  for (const [name, kind] of LOAD_FIELDS) {
    const raw = values[name];
    if (raw === undefined || raw === '' || raw === false) continue;
    if (kind === 'int' || kind === 'number') {
      const number = Number(raw);
      if (!Number.isFinite(number) || (kind === 'int' && !Number.isInteger(number))) throw new Error(`${name} must be a number`);
      options[name] = number;
    } else if (kind === 'numbers') {
      const list = String(raw).split(/[\s,]+/).filter(Boolean).map(Number);
      if (!list.every(Number.isFinite)) throw new Error(`${name} must be numbers separated by commas`);
      options[name] = list;
      options.gpu_split_auto = false;
    } else options[name] = raw;
  }
  if (options.cache_size && options.cache_size % 256) throw new Error('cache_size must be a multiple of 256');
  if (values.draft_mode && values.draft_mode !== 'none') {
    options.draft_model = { draft_mode: values.draft_mode, ...(values.draft_mode === 'model' ? { draft_model_name: values.draft_model_name } : {}), ...(values.draft_num_tokens ? { draft_num_tokens: Number(values.draft_num_tokens) } : {}) };
  }
  return options;
}

export function loadForm(card) {
  const values = { ...(settings.value.loadOptions[card.id] ?? {}) };
  const plan = el('div.load-plan', { 'aria-live': 'polite' });
  const problem = el('p.field-error', { hidden: true, role: 'alert' });
  const replan = afterQuiet(500, async () => {
    try {
      const answer = await planLoad(loadOptions(card.id, values));
      const short = memoryDevices(answer).some((device) => device.free < 0) || answer.fits === false;
      fill(plan, el('p', { class: short ? 'plan-short' : 'plan-fits' }, say(short ? 'plan.short' : 'plan.fits')), memoryBars(answer));
      problem.hidden = true;
    } catch (error) {
      fill(plan, memoryBars(error.details));
      problem.textContent = error.message;
      problem.hidden = false;
    }
  });
  const set = (name, value) => {
    if (value === '' || value === false) delete values[name];
    else values[name] = value;
    replan();
  };
  const control = ([name, kind, choices]) => {
    if (kind === 'flag') return checkbox(say(`load.${name}`), Boolean(values[name]), (value) => set(name, value));
    const input = kind === 'choice' ? select([['', say('sampler.default')], ...choices.filter(Boolean).map((c) => [c, c])], values[name] ?? '', (value) => set(name, value))
      : textInput(values[name], { inputmode: kind === 'text' ? 'text' : 'decimal', placeholder: loadDefault(card, name), on: { input: () => set(name, input.value.trim()) } });
    return field(say(`load.${name}`), input);
  };
  const draftName = el('select', { on: { change: () => set('draft_model_name', draftName.value) } });
  getJson('v1/model/draft/list').then((list) => {
    fill(draftName, el('option', { value: '' }, '–'), (list.data ?? []).map((d) => el('option', { value: d.id }, d.id)));
    draftName.value = values.draft_model_name ?? '';
  }, () => {});
  const draftTokens = textInput(values.draft_num_tokens, { inputmode: 'numeric', on: { input: () => set('draft_num_tokens', draftTokens.value.trim()) } });
  const start = async () => {
    try {
      const options = loadOptions(card.id, values);
      settings.patch({ loadOptions: { ...settings.value.loadOptions, [card.id]: values } });
      await loadModel(options);
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  };
  replan();
  return el('form.load-form', { on: { submit: (event) => { event.preventDefault(); start(); } } },
    el('div.form-grid', null, LOAD_FIELDS.map(control)),
    el('fieldset', null, el('legend', null, say('load.draft')), el('div.form-grid', null,
      field(say('load.draft_mode'), select([['none', say('off')], ['model', say('draft.model')], ['ngram', say('draft.ngram')], ['mtp', say('draft.mtp')]], values.draft_mode ?? 'none', (value) => set('draft_mode', value))), field(say('load.draft_model_name'), draftName), field(say('load.draft_num_tokens'), draftTokens))),
    plan, problem, el('div.dialog-actions', null, button({ label: say('load.forget'), variant: 'link', onClick: () => settings.patch({ loadOptions: Object.fromEntries(Object.entries(settings.value.loadOptions).filter(([id]) => id !== card.id)) }) }),
      el('button.button.primary', { type: 'submit' }, say(card.status === 'loaded' ? 'model.reloadNow' : 'model.load'))));
}

/** What the server will take when a field is left empty, as far as the card tells. */
function loadDefault(card, name) {
  const known = { max_seq_len: card.max_model_len, ...(card.parameters ?? {}) }[name];
  return known === undefined || known === null ? say('load.auto') : String(known);
}
