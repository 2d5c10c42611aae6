// The models view: the directory with a load form for an admin key, what is loaded for an api key,
// downloads, adapters, templates and server presets.

import { el, fill } from '../page/element.js';
import { afterQuiet } from '../page/cell.js';
import { button, field, textInput } from '../page/controls.js';
import { formatBits, formatBytes, formatCompact } from '../page/format.js';
import { showError, toast } from '../page/toast.js';
import { say } from '../page/words.js';
import { getJson, postJson, readEvents, send } from '../net/api.js';
import { connection, contextTokens, currentModel, isAdmin } from '../net/connection.js';
import { loadForm } from './load_form.js';
import { loadProgress } from './load_progress.js';
import { modelFacts } from './model_menu.js';
import { modelLoading, unloadModel } from './model_load.js';

export function modelsView() {
  let cards = [];
  let chosen = null;
  /** What is on the screen: drawn again only when it changed, so that nothing typed or opened is lost. */
  let lastDrawn = '';
  let toolsFor = null;
  const search = el('input.list-search', { type: 'search', placeholder: say('models.search'), 'aria-label': say('models.search'), on: { input: afterQuiet(100, () => drawList()) } });
  const rows = el('ul.list-rows', { 'aria-label': say('models.list') });
  const detail = el('div.model-detail');
  const tools = el('div.model-tools');
  const progress = loadProgress();
  const main = el('section.models', { 'aria-label': say('view.models') }, el('div.models-column', null, progress, detail, tools));

  async function refresh() {
    if (connection.value.state !== 'ok') return;
    try {
      cards = (await getJson('v1/model/list')).data ?? [];
    } catch (error) {
      showError(error);
    }
    const drawn = JSON.stringify([cards, currentModel.value, isAdmin()]);
    if (drawn === lastDrawn) return;
    lastDrawn = drawn;
    chosen = cards.find((card) => card.id === chosen?.id) ?? cards.find((card) => card.status === 'loaded') ?? cards[0] ?? null;
    drawList();
    drawDetail();
  }

  function drawList() {
    const words = search.value.trim().toLowerCase();
    const found = cards.filter((card) => card.id.toLowerCase().includes(words));
    fill(rows, found.length ? found.map((card) => el('li.list-row', { class: card.id === chosen?.id ? 'open' : '' }, el('button.list-button', { type: 'button', 'aria-current': card.id === chosen?.id ? 'true' : undefined, on: { click: () => { chosen = card; drawList(); drawDetail(); } } },
      el('span.list-title', null, card.id), el('span.list-meta', null, card.status === 'loaded' ? el('span.tag.loaded', null, say('model.state.loaded')) : null,
        [card.quantization, formatBits(card.bpw), card.size_bytes ? formatBytes(card.size_bytes) : null, contextTokens(card) ? formatCompact(contextTokens(card)) : null].filter(Boolean).join(' · ')))))
      : el('li.list-empty', null, say('models.empty')));
  }

  function drawDetail() {
    if (!isAdmin()) {
      const model = currentModel.value;
      return fill(detail, el('h2', null, model?.id ?? say('model.none')), model ? modelFacts(model) : null, el('p.plain-note', null, say(model ? 'models.apiLoaded' : 'models.apiNone')));
    }
    if (!chosen) return fill(detail, el('h2', null, say('models.emptyTitle')), el('p.plain-note', null, say('models.empty')));
    const loaded = chosen.status === 'loaded';
    return fill(detail, el('div.detail-head', null, el('h2', null, chosen.id), loaded ? button({ label: say('model.unload'), icon: 'eject', showLabel: true, variant: 'plain', onClick: unloadModel }) : null),
      modelFacts(loaded && currentModel.value ? { ...chosen, ...currentModel.value } : chosen), loadForm(loaded && currentModel.value ? { ...chosen, ...currentModel.value, status: 'loaded' } : chosen));
  }

  function drawTools() {
    if (toolsFor === isAdmin()) return;
    toolsFor = isAdmin();
    fill(tools, isAdmin() ? [templateTools(), presetTools(), downloadTools(refresh), otherLists()] : null);
  }

  currentModel.watch(() => { if (main.isConnected) refresh(); }, { now: false });
  modelLoading.watch((now) => { if (!now && main.isConnected) refresh(); }, { now: false });
  connection.watch(({ state }) => { if (state === 'ok' && main.isConnected && cards.length === 0) { refresh(); drawTools(); } }, { now: false });
  return {
    list: el('div.list-panel', null, search, rows), main,
    async open() {
      await refresh();
      drawTools();
    },
  };
}

/** A folded part that reads its content when it is first opened. */
function foldedPart(title, build) {
  const body = el('div.part-body');
  const node = el('details.part', { on: { toggle: () => { if (node.open && !body.firstChild) build(body).catch(showError); } } }, el('summary', null, title), body);
  return node;
}

function templateTools() {
  return foldedPart(say('templates.title'), async (body) => {
    const names = (await getJson('v1/templates')).data ?? [];
    const preview = el('pre.template-preview', { tabIndex: 0 });
    const show = async () => {
      const { prompt } = await postJson('apply-template', { messages: [{ role: 'user', content: 'Hello' }, { role: 'assistant', content: 'Hello, how can I help?' }, { role: 'user', content: 'Tell me a story.' }] });
      preview.textContent = prompt;
    };
    const use = (name) => postJson('v1/template/switch', { prompt_template_name: name }).then(() => { toast(say('templates.used', { name })); return show(); }).catch(showError);
    fill(body, names.map((name) => el('div.row', null, el('span', null, name), button({ label: say('use'), variant: 'plain', onClick: () => use(name) }))),
      button({ label: say('templates.preview'), variant: 'plain', onClick: () => show().catch(showError) }), preview);
  });
}

function presetTools() {
  return foldedPart(say('serverPresets.title'), async (body) => {
    const draw = async () => {
      const { selected_preset: selected, presets = [] } = await getJson('v1/sampling/overrides');
      const call = (path, data) => postJson(path, data).then(draw, showError);
      fill(body, presets.map((name) => el('div.row', null, el('span', null, name, name === selected ? el('span.tag.loaded', null, say('inUse')) : null), button({ label: say('use'), variant: 'plain', onClick: () => call('v1/sampling/override/switch', { preset: name }) }))),
        selected ? button({ label: say('serverPresets.clear'), variant: 'plain', onClick: () => call('v1/sampling/override/unload', {}) }) : null, presets.length ? null : el('p', null, say('serverPresets.none')));
    };
    await draw();
  });
}

function downloadTools(onDone) {
  return foldedPart(say('download.title'), async (body) => {
    const repo = textInput('', { placeholder: say('download.repoHint') });
    const revision = textInput('', {});
    const state = el('p', { 'aria-live': 'polite' });
    const bar = el('span.progress-computed');
    let abort = null;
    const start = async () => {
      abort = new AbortController();
      cancel.hidden = false;
      try {
        const response = await send('POST', 'v1/download', { body: { repo_id: repo.value.trim(), ...(revision.value.trim() ? { revision: revision.value.trim() } : {}), stream: true }, signal: abort.signal });
        await readEvents(response, (now) => {
          bar.style.setProperty('width', `${now.total ? (100 * now.done) / now.total : 0}%`);
          state.textContent = say('download.state', { file: now.file ?? '', done: formatBytes(now.done), total: formatBytes(now.total), k: now.files_done ?? 0, n: now.files_total ?? 0 });
        });
        state.textContent = say('download.done');
        onDone();
      } catch (error) {
        state.textContent = error.name === 'AbortError' ? say('load.cancelled') : error.message;
      }
      cancel.hidden = true;
    };
    const cancel = button({ label: say('cancel'), variant: 'plain', hidden: true, onClick: () => abort?.abort() });
    fill(body, el('form', { on: { submit: (event) => { event.preventDefault(); start(); } } }, el('div.form-grid', null, field(say('download.repo'), repo), field(say('download.revision'), revision)),
      el('div.progress-bar.wide', { 'aria-hidden': 'true' }, bar), state, el('div.dialog-actions', null, cancel, el('button.button.primary', { type: 'submit' }, say('download.start')))));
  });
}

function otherLists() {
  return foldedPart(say('models.other'), async (body) => {
    const part = async (title, path) => {
      const cards = (await getJson(path).catch(() => ({}))).data ?? [];
      return cards.length ? [el('h3', null, title), el('ul', null, cards.map((card) => el('li', null, card.id)))] : null;
    };
    const parts = await Promise.all([part(say('models.drafts'), 'v1/model/draft/list'), part(say('models.embeddings'), 'v1/model/embedding/list'), part(say('adapters.title'), 'v1/loras')]);
    fill(body, parts.some(Boolean) ? parts : el('p', null, say('models.noOther')));
  });
}
