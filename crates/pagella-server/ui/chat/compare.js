// The same question with two to four settings side by side, run in parallel, with their timings.

import { el, fill, setText } from '../page/element.js';
import { button, field, select, textInput } from '../page/controls.js';
import { openDialog } from '../page/dialog.js';
import { formatCount, formatRate, formatSeconds } from '../page/format.js';
import { showError } from '../page/toast.js';
import { say } from '../page/words.js';
import { readEvents, send } from '../net/api.js';
import { foldChunk, newAnswer } from '../net/answer_fold.js';
import { appendNode, newNode } from '../data/conversation_store.js';
import { presetsOf } from '../data/preset_store.js';
import { pathTo } from '../data/tree.js';
import { MarkdownView } from '../render/markdown_view.js';
import { checkSampler } from '../sampler/sampler_values.js';
import { samplerByName } from '../sampler/sampler_table.js';
import { chatBody } from './chat_request.js';

const COLUMNS_MIN = 2;
const COLUMNS_COUNT_MAX = 4;

/** Compares answers to `question`; an answer that is taken becomes a sibling in the conversation. */
export function openCompare(chat, question, onTaken) {
  const columns = [];
  return openDialog(say('compare.title'), (close) => {
    const grid = el('div.compare-grid');
    const add = () => {
      const column = compareColumn(chat, question, columns.length, async (node) => { await appendNode(chat.record, chat.tree, node); close(); onTaken(); });
      columns.push(column);
      grid.append(column.node);
      addButton.disabled = columns.length >= COLUMNS_COUNT_MAX;
    };
    const addButton = button({ label: say('compare.add'), icon: 'plus', showLabel: true, variant: 'plain', onClick: add });
    for (let i = 0; i < COLUMNS_MIN; i++) add();
    return [el('p.compare-question', null, question.content.slice(0, 400)), grid,
      el('div.dialog-actions', null, addButton, button({ label: say('compare.run'), variant: 'primary', onClick: () => Promise.all(columns.map((column) => column.run())) }))];
  }, { wide: true, className: 'compare' }).then(() => columns.forEach((column) => column.stop()));
}

function compareColumn(chat, question, index, onTake) {
  const own = presetsOf('samplers');
  const start = select([['', say('compare.current')], ...own.map((preset) => [preset.id, preset.name])], '');
  const temperature = textInput(index === 0 ? '' : String(0.3 + 0.4 * index), { inputmode: 'decimal' });
  const seed = textInput('', { inputmode: 'numeric' });
  const view = new MarkdownView();
  const timing = el('p.compare-timing');
  const take = button({ label: say('compare.take'), variant: 'plain', disabled: true });
  let abort = null;

  const samplers = () => {
    const values = { ...(own.find((preset) => preset.id === start.value)?.values ?? chat.record.samplers) };
    for (const [name, input] of [['temperature', temperature], ['seed', seed]]) {
      const { value, error } = checkSampler(samplerByName.get(name), input.value);
      if (error) throw new Error(`${name} ${error}`);
      if (value !== undefined) values[name] = value;
    }
    return values;
  };

  const run = async () => {
    abort?.abort();
    abort = new AbortController();
    const answer = newAnswer();
    const started_ms = performance.now();
    let first_s = null;
    try {
      const values = samplers();
      const body = chatBody({ path: pathTo(chat.tree, question.id), system: chat.record.system, samplers: values });
      const response = await send('POST', 'v1/chat/completions', { body, signal: abort.signal });
      let frame = 0;
      await readEvents(response, (chunk) => {
        foldChunk(answer, chunk);
        if (answer.deltas && first_s === null) first_s = (performance.now() - started_ms) / 1000;
        frame ||= requestAnimationFrame(() => { frame = 0; view.update(answer.content); });
      });
      view.update(answer.content);
      setText(timing, [say('stat.tokens', { n: formatCount(answer.usage?.completion_tokens) }), say('stat.rate', { n: formatRate(answer.usage?.completion_tokens_per_sec) }), say('stat.first', { t: formatSeconds(first_s) })].join(' · '));
      take.disabled = false;
      take.onclick = () => onTake(newNode(chat.record, question.id, 'assistant', { content: answer.content, reasoning: answer.reasoning, model: answer.model, samplers: values, seed: answer.seed, usage: answer.usage, finish: answer.finish, eosReason: answer.eosReason, timing: { first_s, total_s: (performance.now() - started_ms) / 1000 } }));
    } catch (error) {
      if (error.name !== 'AbortError') showError(error);
    }
  };
  const node = el('section.compare-column', { 'aria-label': say('compare.column', { n: index + 1 }) }, field(say('compare.start'), start),
    el('div.field-pair', null, field('temperature', temperature), field('seed', seed)), el('div.compare-text', { tabIndex: 0 }, view.node), timing, take);
  fill(timing, say('compare.idle'));
  return { node, run, stop: () => abort?.abort() };
}
