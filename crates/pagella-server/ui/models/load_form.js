// The form of load options for one model: defaults filled in, remembered per model, with the memory plan.

import { el, fill } from '../page/element.js';
import { afterQuiet } from '../page/cell.js';
import { button, field, select, textInput } from '../page/controls.js';
import { settings } from '../page/settings.js';
import { say } from '../page/words.js';
import { memoryBars, memoryDevices } from './memory_bar.js';
import { loadModel, planLoad } from './model_load.js';

const CACHE_MODES = ['FP16', 'Q8', 'Q6', 'Q4', 'F8'];
const TOOL_FORMATS = ['command-r', 'deepseek-v3', 'deepseek-v3.1', 'functionary-v3.1', 'gemma-4', 'generic', 'glm-4.5', 'granite', 'harmony', 'hermes', 'kimi-k2', 'llama-3', 'minimax-m2', 'mistral', 'mistral-args', 'mistral-call-id', 'phi-4', 'pythonic', 'qwen3-coder'];

/** `[name, kind, choices]`; kinds: int, number, text, choice. What this server would refuse is not among them. */
const LOAD_FIELDS = [
  ['max_seq_len', 'int'], ['cache_size', 'int'], ['cache_mode', 'choice', CACHE_MODES], ['chunk_size', 'int'], ['max_batch_size', 'int'],
  ['rope_scale', 'number'], ['rope_alpha', 'text'], ['prompt_template', 'text'], ['tool_format', 'choice', TOOL_FORMATS],
];

/** The options of the form's values; throws a sentence for a value that cannot be. */
export function loadOptions(model, values) {
  const options = { model_name: model };
  for (const [name, kind] of LOAD_FIELDS) {
    const raw = values[name];
    if (raw === undefined || raw === '') continue;
    if (kind === 'int' || kind === 'number') {
      const number = Number(raw);
      if (!Number.isFinite(number) || (kind === 'int' && !Number.isInteger(number))) throw new Error(`${name} must be a number`);
      options[name] = number;
    } else options[name] = raw;
  }
  if (options.cache_size && options.cache_size % 256) throw new Error('cache_size must be a multiple of 256');
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
    if (value === '') delete values[name];
    else values[name] = value;
    replan();
  };
  const control = ([name, kind, choices]) => {
    const input = kind === 'choice' ? select([['', say('sampler.default')], ...choices.map((c) => [c, c])], values[name] ?? '', (value) => set(name, value))
      : textInput(values[name], { inputmode: kind === 'text' ? 'text' : 'decimal', placeholder: loadDefault(card, name), on: { input: () => set(name, input.value.trim()) } });
    return field(say(`load.${name}`), input);
  };
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
    plan, problem, el('div.dialog-actions', null, button({ label: say('load.forget'), variant: 'link', onClick: () => settings.patch({ loadOptions: Object.fromEntries(Object.entries(settings.value.loadOptions).filter(([id]) => id !== card.id)) }) }),
      el('button.button.primary', { type: 'submit' }, say(card.status === 'loaded' ? 'model.reloadNow' : 'model.load'))));
}

/** What the server will take when a field is left empty, as far as the card tells. */
function loadDefault(card, name) {
  const known = { max_seq_len: card.max_model_len, ...(card.parameters ?? {}) }[name];
  return known === undefined || known === null ? say('load.auto') : String(known);
}
