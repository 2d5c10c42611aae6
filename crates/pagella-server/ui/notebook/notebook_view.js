// The notebook view: plain text and a model that continues it, at the cursor or over the selection.

import { el, fill, setText } from '../page/element.js';
import { afterQuiet } from '../page/cell.js';
import { announce } from '../page/announce.js';
import { button, relabel } from '../page/controls.js';
import { promptDialog } from '../page/dialog.js';
import { formatCount, formatPercent, formatRate, formatWhen } from '../page/format.js';
import { openMenu } from '../page/menu.js';
import { showError, toast } from '../page/toast.js';
import { say } from '../page/words.js';
import { postJson, readEvents, send } from '../net/api.js';
import { foldChunk, newAnswer, readLogprobs } from '../net/answer_fold.js';
import { connection, contextTokens, currentModel, hasCapability } from '../net/connection.js';
import { deleteNotebook, newNotebook, notebooks, saveNotebook } from '../data/notebook_store.js';
import { SamplerPanel } from '../sampler/sampler_panel.js';
import { samplerFields } from '../sampler/sampler_values.js';
import { Editor } from './editor.js';
import { TokenView, perplexity } from './token_view.js';
import { TokenScores, placePieces, placeTokens } from './token_scores.js';

const TOP_TOKENS = 10;
const SAVE_QUIET_MS = 600;

export function notebookView({ go }) {
  let notebook = newNotebook();
  /** The request that writes into the text, or null. */
  let run = null;
  /** What is known of the tokens' probabilities. */
  let scores = new TokenScores();
  /** Tokens of the text as it was last counted; null while nobody knows. */
  let counted = null;
  let unsaved = false;
  /** How far the text was scrolled when the view was left. */
  let scrolled = 0;
  let visited = false;

  const save = afterQuiet(SAVE_QUIET_MS, async () => { await saveNotebook(notebook).catch(showError); unsaved = false; });
  const editor = new Editor((text) => {
    notebook.text = text;
    unsaved = true;
    if (text || notebooks.value.some((n) => n.id === notebook.id)) save();
    count();
  });
  const panel = new SamplerPanel({ route: 'completions', onChange: (values) => { notebook.samplers = values; save(); }, requestBody: () => ({ prompt: editor.text.slice(-200) }) });
  const tokens = new TokenView((offset, text) => chooseAlternative(offset, text));
  const counter = el('span.notebook-count', { role: 'status' });
  const state = el('span.notebook-state');
  const generateButton = button({ label: say('notebook.generate'), icon: 'play', showLabel: true, variant: 'primary', keys: 'Shift+Enter', onClick: () => (run ? stop() : generate({})) });
  const stepButton = button({ label: say('notebook.oneToken'), icon: 'step', keys: 'Ctrl+Enter', onClick: () => generate({ one: true }) });
  const undoButton = button({ label: say('undo'), icon: 'undo', keys: 'Ctrl+Z', onClick: () => editor.undo() });
  const tokenButton = button({ label: say('notebook.tokens'), variant: 'plain', 'aria-pressed': 'false', onClick: () => toggleTokens() });
  const suffix = el('input', { type: 'checkbox', id: 'notebook-suffix' });
  const suffixBox = el('label.check', { for: 'notebook-suffix' }, suffix, el('span', null, say('notebook.suffix')));
  const offersSuffix = () => hasCapability(currentModel.value, 'infill');
  const chatTurn = button({ label: say('notebook.turn'), variant: 'plain', onClick: () => insertTurn() });
  const rows = el('ul.list-rows', { 'aria-label': say('notebook.list') });
  const split = el('div.notebook-split', null, editor.node);
  const main = el('section.notebook', { 'aria-label': say('view.notebook') }, split,
    el('div.notebook-bar', { role: 'toolbar', 'aria-label': say('notebook.tools') }, generateButton, stepButton, undoButton, tokenButton, chatTurn,
      suffixBox, el('span.bar-space'), state, counter));

  editor.area.addEventListener('keydown', (event) => {
    if (event.isComposing || event.key !== 'Enter') return;
    if (event.shiftKey) { event.preventDefault(); generate({}); } else if (event.ctrlKey || event.metaKey) { event.preventDefault(); generate({ one: true }); }
  });
  document.addEventListener('selectionchange', () => { if (document.activeElement === editor.area) count(); });
  addEventListener('beforeunload', (event) => { if (unsaved && editor.text) event.preventDefault(); });

  /** Continues at the cursor, or writes over the selection. */
  async function generate({ one = false, from = null, first = '' }) {
    if (run || connection.value.state !== 'ok') return;
    const start = from ?? editor.area.selectionStart;
    const end = from === null ? editor.area.selectionEnd : editor.text.length;
    const rest = editor.text.slice(end);
    const body = { prompt: editor.text.slice(0, start) + first, ...samplerFields(notebook.samplers, 'completions'), logprobs: TOP_TOKENS, return_token_ids: true, stream: true, stream_options: { include_usage: true }, return_progress: true };
    if (one) Object.assign(body, { max_tokens: 1, min_tokens: 0 });
    if (offersSuffix() && suffix.checked && rest.trim()) body.suffix = rest;
    const mine = { abort: new AbortController(), answer: newAnswer(), start, length: end - start, first, frame: 0, before: counted };
    editor.mark();
    run = mine;
    drawRunning();
    setText(state, say('phase.sent'));
    if (first) showRun(mine);
    try {
      const response = await send('POST', 'v1/completions', { body, signal: mine.abort.signal });
      await readEvents(response, (chunk) => {
        if (run !== mine) return;
        foldChunk(mine.answer, chunk);
        mine.frame ||= requestAnimationFrame(() => { mine.frame = 0; drawRun(mine); });
      });
      endRun(mine, 'done');
    } catch (error) {
      endRun(mine, 'failed');
      if (error.name !== 'AbortError') showError(error);
    }
  }

  /** The text that a run has written so far, in its place. */
  function showRun(mine) {
    const text = mine.first + mine.answer.content;
    editor.insert(mine.start, mine.start + mine.length, text);
    mine.length = text.length;
  }

  function drawRun(mine) {
    const { content, progress, logprobs } = mine.answer;
    if (content) showRun(mine);
    if (logprobs.length) {
      setText(state, say('notebook.writing', { n: formatCount(logprobs.length) }));
      if (mine.before !== null) drawCount(mine.before + logprobs.length);
    } else if (progress) setText(state, say('notebook.reading', { p: formatPercent(progress.processed / progress.total) }));
  }

  /** Ends a run once, whoever ends it: nothing of it reaches the text or the bar afterwards. `how`: done, stopped, failed. */
  function endRun(mine, how) {
    if (run !== mine) return;
    cancelAnimationFrame(mine.frame);
    const { answer, start, first } = mine;
    if (answer.content || how === 'done') showRun(mine);
    run = null;
    scores.add(editor.text, placeTokens(answer.logprobs, answer.content, start + first.length));
    const n = answer.usage?.completion_tokens ?? answer.logprobs.length;
    // One token takes no time that says anything.
    const rate = n > 1 ? answer.usage?.completion_tokens_per_sec : null;
    const words = [how === 'stopped' ? say('end.stopped') : how === 'failed' ? say('end.failed') : '', how !== 'failed' || n ? say('stat.tokens', { n: formatCount(n) }) : '', rate ? say('stat.rate', { n: formatRate(rate) }) : ''];
    setText(state, words.filter(Boolean).join(' · '));
    announce(how === 'stopped' ? say('end.stopped') : say('announce.done', { n: formatCount(n) }));
    drawRunning();
    drawTokens();
    count();
    editor.area.focus({ preventScroll: true });
  }

  /** Ends the request: the server stops when its client goes. What was written stays. */
  function stop() {
    const mine = run;
    if (!mine) return false;
    endRun(mine, 'stopped');
    mine.abort.abort();
    return true;
  }

  /** Tokens of the whole text: known ones with probabilities, the rest as the tokenizer cuts them. */
  async function drawTokens() {
    if (!tokens.node.isConnected) return;
    const { text } = editor;
    const out = [];
    let gap = 0;
    const fillGap = async (to) => {
      if (to <= gap) return;
      const part = text.slice(gap, to);
      const { tokens: ids, pieces } = await postJson('v1/token/encode', { text: part, add_bos_token: gap === 0, with_pieces: true });
      out.push(...placePieces(ids, pieces, part, gap));
    };
    try {
      for (const token of scores.of(text)) {
        await fillGap(token.at);
        out.push(token);
        gap = Math.max(gap, token.end);
      }
      await fillGap(text.length);
      if (text === editor.text) tokens.update(out);
    } catch (error) {
      tokens.clear(error.message);
    }
  }

  /** Asks for the probabilities of the whole text. Those that are known stay until the new ones are there. */
  async function scoreText() {
    const { text } = editor;
    if (!text || run) return;
    scoreButton.disabled = true;
    setText(state, say('notebook.scoring'));
    try {
      const reply = await postJson('v1/completions', { prompt: text, echo: true, logprobs: TOP_TOKENS, max_tokens: 1 });
      const placed = placeTokens(readLogprobs(reply.choices[0].logprobs ?? {}), text);
      if (text === editor.text) scores.set(text, placed);
      setText(state, say('notebook.scored', { n: formatCount(placed.length), x: formatRate(perplexity(placed)) }));
      await drawTokens();
    } catch (error) {
      setText(state, '');
      showError(error);
    } finally {
      scoreButton.disabled = false;
    }
  }

  function chooseAlternative(offset, text) {
    generate({ from: offset, first: text });
  }

  const scoreButton = button({ label: say('notebook.score'), variant: 'plain', onClick: scoreText });

  function toggleTokens() {
    const on = tokens.node.isConnected;
    tokenButton.setAttribute('aria-pressed', String(!on));
    if (on) { tokens.node.remove(); scoreButton.remove(); } else { split.append(tokens.node); tokenButton.after(scoreButton); drawTokens(); }
  }

  const count = afterQuiet(400, async () => {
    if (!main.isConnected || run || connection.value.state !== 'ok' || !currentModel.value) return;
    const { text } = editor;
    const n = text ? (await postJson('v1/token/encode', { text }).catch(() => ({ length: null }))).length : 0;
    if (text !== editor.text || run) return;
    counted = n;
    drawCount(n);
  });

  function drawCount(n) {
    const max = contextTokens(currentModel.value);
    const { selectionStart: a, selectionEnd: b } = editor.area;
    const chosen = a < b ? perplexity(scores.of(editor.text).filter(({ at, end }) => at >= a && end <= b)) : null;
    setText(counter, n === null || !max ? '' : [say('notebook.count', { n: formatCount(n), p: formatPercent(n / max) }), chosen ? say('notebook.perplexity', { n: formatRate(chosen) }) : ''].filter(Boolean).join(' · '));
  }

  function drawRunning() {
    const running = Boolean(run);
    const label = say(running ? 'stop' : 'notebook.generate');
    relabel(generateButton, label, running ? 'stop' : 'play', running ? 'Esc' : 'Shift+Enter');
    setText(generateButton.querySelector('span'), label);
    generateButton.classList.toggle('running', running);
    // What is written belongs to one place in the text: until it is there, the text stands still.
    editor.area.readOnly = running;
    for (const node of [stepButton, undoButton, chatTurn]) node.disabled = running;
  }

  /** What the template puts around a turn, at the cursor. */
  async function insertTurn() {
    const message = await promptDialog(say('notebook.turn'), say('notebook.turnText'));
    if (!message) return;
    try {
      const { prompt } = await postJson('apply-template', { messages: [{ role: 'user', content: message }], add_generation_prompt: true });
      editor.mark();
      editor.insert(editor.area.selectionStart, editor.area.selectionEnd, prompt);
    } catch (error) {
      showError(error);
    }
  }

  function openNotebook(next) {
    stop();
    notebook = next;
    scores = new TokenScores();
    counted = null;
    setText(state, '');
    editor.open(notebook.text);
    panel.open(notebook.samplers ?? {});
    drawList();
    count();
    drawTokens();
  }

  function drawList() {
    fill(rows, notebooks.value.map((item) => {
      const menu = button({ label: say('list.rowMenu', { title: item.title }), icon: 'more', 'aria-haspopup': 'menu', onClick: () => openMenu(menu, [
        { label: say('rename'), icon: 'edit', run: async () => { const title = await promptDialog(say('rename'), say('title'), item.title); if (title) saveNotebook(Object.assign(item, { title, named: true })); } },
        { label: say('delete'), icon: 'bin', danger: true, run: () => removeNotebook(item) },
      ]) });
      return el('li.list-row', { class: item.id === notebook.id ? 'open' : '' }, el('a', { href: `#/notebook/${item.id}`, 'aria-current': item.id === notebook.id ? 'page' : undefined }, el('span.list-title', null, item.title || say('untitled')), el('span.list-meta', null, formatWhen(item.updated))), menu);
    }));
    if (!rows.firstChild) fill(rows, el('li.list-empty', null, say('notebook.none')));
  }

  async function removeNotebook(item) {
    await deleteNotebook(item.id);
    if (item.id === notebook.id) openNotebook(newNotebook());
    toast(say('deleted.notebook'), { action: [say('undo'), () => saveNotebook(item)] });
  }

  notebooks.watch(() => drawList());
  currentModel.watch(() => { suffixBox.hidden = !offersSuffix(); count(); });
  const list = el('div.list-panel', null, el('div.list-head', null, button({ label: say('notebook.new'), icon: 'plus', showLabel: true, variant: 'primary', onClick: () => { openNotebook(newNotebook()); go('notebook'); editor.area.focus(); } })), rows);
  return {
    title: () => notebook.title || say('view.notebook'), list, main, side: panel.node,
    async open(id) {
      const found = notebooks.value.find((item) => item.id === id);
      // The first visit opens the newest one; later ones what was open, which may be new and empty.
      if (found && found.id !== notebook.id) openNotebook(found);
      else if (!id && !visited && notebooks.value[0]) openNotebook(notebooks.value[0]);
      else { panel.open(notebook.samplers ?? {}); drawList(); count(); }
      visited = true;
    },
    address: () => (notebooks.value.some((item) => item.id === notebook.id) ? `notebook/${notebook.id}` : 'notebook'),
    hidden: () => { scrolled = editor.area.scrollTop; },
    back: () => { editor.area.scrollTop = scrolled; },
    shown: () => editor.area.focus({ preventScroll: true }),
    escape: stop,
  };
}
