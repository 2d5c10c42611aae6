// The model button's dialog: what is loaded, where its memory goes, its adapters, and the ways to change it.

import { el, fill } from '../page/element.js';
import { button, field, textInput } from '../page/controls.js';
import { openDialog } from '../page/dialog.js';
import { formatBits, formatBytes, formatCompact } from '../page/format.js';
import { showError } from '../page/toast.js';
import { say } from '../page/words.js';
import { getJson, postJson } from '../net/api.js';
import { contextTokens, currentModel, isAdmin } from '../net/connection.js';
import { readScale, withAdapter } from './adapter_set.js';
import { loadProgress } from './load_progress.js';
import { memoryBars } from './memory_bar.js';
import { modelLoading, unloadModel } from './model_load.js';

export function openModelMenu() {
  let progress;
  let unwatch;
  return openDialog(say('model.menu'), (close) => {
    const body = el('div.model-menu');
    progress = loadProgress();
    unwatch = currentModel.watch((model) => fill(body, model ? modelCard(model) : el('p', null, say(isAdmin() ? 'model.noneAdmin' : 'model.noneApi')), progress,
      el('div.dialog-actions', null,
        el('a.button.plain', { href: '#/models', on: { click: () => close() } }, say(isAdmin() ? (model ? 'model.reload' : 'model.load') : 'view.models')),
        isAdmin() && model ? button({ label: say('model.unload'), icon: 'eject', showLabel: true, variant: 'danger', disabled: Boolean(modelLoading.value), onClick: unloadModel }) : null)));
    return body;
  }).then(() => { progress.dispose(); unwatch(); });
}

/** Facts of a card as a list of terms. */
export function modelFacts(model) {
  const p = model.parameters ?? {};
  const rows = [
    [say('fact.quantization'), [model.quantization, formatBits(model.bpw)].filter(Boolean).join(', ')],
    [say('fact.size'), model.size_bytes ? formatBytes(model.size_bytes) : ''],
    [say('fact.context'), contextTokens(model) ? say('fact.tokens', { n: formatCompact(contextTokens(model)) }) : ''],
    [say('fact.cache'), [p.cache_size ? say('fact.tokens', { n: formatCompact(p.cache_size) }) : null, p.cache_mode].filter(Boolean).join(', ')],
    [say('fact.draft'), p.draft?.id ?? ''],
    [say('fact.template'), p.prompt_template ?? ''],
    [say('fact.can'), (model.capabilities ?? []).join(', ')],
  ];
  return el('dl.facts', null, rows.filter(([, value]) => value).map(([name, value]) => [el('dt', null, name), el('dd', null, value)]));
}

function modelCard(model) {
  const adapters = el('div.adapters');
  drawAdapters(adapters);
  return [el('h3.model-title', null, model.id), modelFacts(model), memoryBars(model), adapters];
}

async function drawAdapters(node) {
  try {
    const cards = (await getJson('v1/loras')).data ?? [];
    fill(node, cards.length === 0 ? null : [el('h4', null, say('adapters.title')), cards.map((card) => adapterRow(card, cards, node))]);
  } catch (error) {
    showError(error);
  }
}

function adapterRow(card, cards, node) {
  const isLoaded = card.status === 'loaded';
  const state = say(card.default ? 'adapters.default' : isLoaded ? 'adapters.loaded' : 'adapters.unloaded');
  const name = el('span', { title: card.adapter ?? card.id }, card.id, ' ', el('small', null, state));
  if (!isAdmin()) return el('div.adapter-row', null, name, isLoaded ? el('span', null, String(card.scaling)) : null);
  const input = textInput(String(card.scaling ?? 1), { inputmode: 'decimal' });
  const send = async (path, body) => {
    try {
      const reply = await postJson(path, body);
      if (reply.failure?.length) throw new Error(reply.errors?.[card.id] ?? say('adapters.failed', { name: card.id }));
    } catch (error) {
      showError(error);
    }
    drawAdapters(node);
  };
  const load = () => {
    const scale = readScale(input.value);
    if (scale === null) showError(new Error(say('adapters.badScale')));
    else send('v1/lora/load', withAdapter(cards, card.id, scale));
  };
  return el('div.adapter-row', null, name, field(say('adapters.scale'), input, { inline: true }),
    button({ label: say(card.default ? 'adapters.apply' : isLoaded ? 'adapters.use' : 'adapters.load'), variant: 'plain', onClick: load }),
    isLoaded ? button({ label: say('adapters.unload'), variant: 'plain', onClick: () => send('v1/lora/unload', { loras: [card.id] }) }) : null);
}
