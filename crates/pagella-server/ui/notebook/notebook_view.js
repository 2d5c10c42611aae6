// The notebook view: plain text and a model that continues it, at the cursor or over the selection.

import { el, fill, setText } from '../page/element.js';
import { afterQuiet } from '../page/cell.js';
import { announce } from '../page/announce.js';
import { button } from '../page/controls.js';
import { promptDialog } from '../page/dialog.js';
import { formatCount, formatPercent, formatRate, formatWhen } from '../page/format.js';
import { openMenu } from '../page/menu.js';
import { showError, toast } from '../page/toast.js';
import { say } from '../page/words.js';
import { postJson, readEvents, send } from '../net/api.js';
import { foldChunk, newAnswer, readLogprobs } from '../net/answer_fold.js';
import { connection, contextTokens, currentModel } from '../net/connection.js';
import { deleteNotebook, newNotebook, notebooks, saveNotebook } from '../data/notebook_store.js';
import { SamplerPanel } from '../sampler/sampler_panel.js';
import { samplerFields } from '../sampler/sampler_values.js';
import { Editor } from './editor.js';
import { TokenView, perplexity } from './token_view.js';

const TOP_TOKENS = 10;
const SAVE_QUIET_MS = 600;

export function notebookView({ go }) {
  let notebook = newNotebook();
  let abort = null;
  /** Tokens with probabilities, by where their text begins; valid while the text there is theirs. */
  let known = new Map();
  let unsaved = false;

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
  const generateButton = button({ label: say('notebook.generate'), icon: 'play', showLabel: true, variant: 'primary', keys: 'Shift+Enter', onClick: () => (abort ? stop() : generate({})) });
  const stepButton = button({ label: say('notebook.oneToken'), icon: 'step', keys: 'Ctrl+Enter', onClick: () => generate({ one: true }) });
  const tokenButton = button({ label: say('notebook.tokens'), variant: 'plain', 'aria-pressed': 'false', onClick: () => toggleTokens() });
  const suffix = el('input', { type: 'checkbox', id: 'notebook-suffix' });
  const chatTurn = button({ label: say('notebook.turn'), variant: 'plain', onClick: () => insertTurn() });
  const rows = el('ul.list-rows', { 'aria-label': say('notebook.list') });
  const split = el('div.notebook-split', null, editor.node);
  const main = el('section.notebook', { 'aria-label': say('view.notebook') }, split,
    el('div.notebook-bar', { role: 'toolbar', 'aria-label': say('notebook.tools') }, generateButton, stepButton, button({ label: say('undo'), icon: 'undo', keys: 'Ctrl+Z', onClick: () => editor.undo() }), tokenButton, chatTurn,
      el('label.check', { for: 'notebook-suffix' }, suffix, el('span', null, say('notebook.suffix'))), el('span.bar-space'), state, counter));

  editor.area.addEventListener('keydown', (event) => {
    if (event.isComposing || event.key !== 'Enter') return;
    if (event.shiftKey) { event.preventDefault(); generate({}); } else if (event.ctrlKey || event.metaKey) { event.preventDefault(); generate({ one: true }); }
  });
  document.addEventListener('selectionchange', () => { if (document.activeElement === editor.area) count(); });
  addEventListener('beforeunload', (event) => { if (unsaved && editor.text) event.preventDefault(); });

  /** Continues at the cursor, or writes over the selection. */
  async function generate({ one = false, from = null, first = '' }) {
    if (abort || connection.value.state !== 'ok') return;
    const start = from ?? editor.area.selectionStart;
    const end = from === null ? editor.area.selectionEnd : editor.text.length;
    const rest = editor.text.slice(end);
    const body = { prompt: editor.text.slice(0, start) + first, ...samplerFields(notebook.samplers, 'completions'), logprobs: TOP_TOKENS, return_token_ids: true, stream: true, stream_options: { include_usage: true }, return_progress: true };
    if (one) body.max_tokens = 1;
    if (suffix.checked && rest.trim()) body.suffix = rest;
    abort = new AbortController();
    editor.mark();
    drawRunning();
    const answer = newAnswer();
    let length = end - start;
    const show = () => {
      const text = first + answer.content;
      editor.insert(start, start + length, text);
      length = text.length;
    };
    try {
      if (first) show();
      const response = await send('POST', 'v1/completions', { body, signal: abort.signal });
      let frame = 0;
      await readEvents(response, (chunk) => {
        foldChunk(answer, chunk);
        if (answer.progress && !answer.content) setText(state, say('notebook.reading', { p: formatPercent(answer.progress.processed / answer.progress.total) }));
        frame ||= requestAnimationFrame(() => { frame = 0; if (answer.content) { show(); setText(state, say('phase.answering')); } });
      });
      cancelAnimationFrame(frame);
      show();
      setText(state, answer.usage ? `${say('stat.tokens', { n: formatCount(answer.usage.completion_tokens) })} · ${say('stat.rate', { n: formatRate(answer.usage.completion_tokens_per_sec) })}` : '');
      announce(say('announce.done', { n: formatCount(answer.usage?.completion_tokens) }));
    } catch (error) {
      if (answer.content) show();
      if (error.name !== 'AbortError') showError(error);
    } finally {
      abort = null;
      remember(start + first.length, answer);
      drawRunning();
      drawTokens();
      editor.area.focus();
    }
  }

  function stop() {
    abort?.abort();
    return true;
  }

  /** Keeps the probabilities of generated tokens where their text stands. */
  function remember(start, answer) {
    let at = start;
    for (const token of answer.logprobs) {
      known.set(at, token);
      at += token.text.length;
    }
  }

  /** Tokens of the whole text: known ones with probabilities, the rest as the tokenizer cuts them. */
  async function drawTokens() {
    if (!tokens.node.isConnected) return;
    const { text } = editor;
    const out = [];
    let gap = 0;
    const fillGap = async (to) => {
      if (to <= gap) return;
      const { tokens: ids, pieces } = await postJson('v1/token/encode', { text: text.slice(gap, to), add_bos_token: gap === 0, with_pieces: true });
      ids.forEach((id, i) => out.push({ text: typeof pieces?.[i] === 'string' ? pieces[i] : '\ufffd', id, logprob: null, top: [] }));
    };
    try {
      for (const [at, token] of [...known].sort((a, b) => a[0] - b[0])) {
        if (at < gap || text.slice(at, at + token.text.length) !== token.text) { known.delete(at); continue; }
        await fillGap(at);
        out.push(token);
        gap = at + token.text.length;
      }
      await fillGap(text.length);
      tokens.update(out);
    } catch (error) {
      tokens.clear(error.message);
    }
  }

  /** Asks for the probabilities of text that the person wrote. */
  async function scorePrompt() {
    try {
      const reply = await postJson('v1/completions', { prompt: editor.text, echo: true, logprobs: TOP_TOKENS, max_tokens: 1 });
      const list = readLogprobs(reply.choices[0].logprobs ?? {});
      known = new Map();
      remember(0, { logprobs: list.slice(0, Math.max(0, list.length - 1)) });
      await drawTokens();
      count();
    } catch (error) {
      showError(error);
    }
  }

  function chooseAlternative(offset, text) {
    generate({ from: offset, first: text });
  }

  const scoreButton = button({ label: say('notebook.score'), variant: 'plain', onClick: scorePrompt });

  function toggleTokens() {
    const on = tokens.node.isConnected;
    tokenButton.setAttribute('aria-pressed', String(!on));
    if (on) { tokens.node.remove(); scoreButton.remove(); } else { split.append(tokens.node); tokenButton.after(scoreButton); drawTokens(); }
  }

  const count = afterQuiet(400, async () => {
    const max = contextTokens(currentModel.value);
    if (!main.isConnected || connection.value.state !== 'ok' || !max) return;
    const n = editor.text ? (await postJson('v1/token/encode', { text: editor.text }).catch(() => ({ length: 0 }))).length : 0;
    const { selectionStart: a, selectionEnd: b } = editor.area;
    const chosen = a < b ? perplexity([...known].filter(([at]) => at >= a && at < b).map(([, token]) => token)) : null;
    setText(counter, [say('notebook.count', { n: formatCount(n), p: formatPercent(n / max) }), chosen ? say('notebook.perplexity', { n: formatRate(chosen) }) : ''].filter(Boolean).join(' · '));
  });

  function drawRunning() {
    const running = Boolean(abort);
    setText(generateButton.querySelector('span'), running ? say('stop') : say('notebook.generate'));
    generateButton.classList.toggle('running', running);
    stepButton.disabled = running;
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
    known = new Map();
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
  currentModel.watch(() => count(), { now: false });
  const list = el('div.list-panel', null, el('div.list-head', null, button({ label: say('notebook.new'), icon: 'plus', showLabel: true, variant: 'primary', onClick: () => { openNotebook(newNotebook()); go('notebook'); editor.area.focus(); } })), rows);
  return {
    title: () => notebook.title || say('view.notebook'), list, main, side: panel.node,
    async open(id) {
      const found = notebooks.value.find((item) => item.id === id);
      if (found && found.id !== notebook.id) openNotebook(found);
      else if (!id && !notebook.text && notebooks.value[0]) openNotebook(notebooks.value[0]);
      else { panel.open(notebook.samplers ?? {}); drawList(); count(); }
    },
    shown: () => editor.area.focus(),
    escape: () => (abort ? stop() : false),
  };
}
