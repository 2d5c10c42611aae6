// Pagella's page: starts everything and wires the views to the frame. Addresses are `#/view/id?options`;
// they can show and fill, never send and never change settings.

import { button } from './page/controls.js';
import { confirmDialog } from './page/dialog.js';
import { applySettings, settings } from './page/settings.js';
import { placeToasts } from './page/toast.js';
import { say } from './page/words.js';
import { connection, currentModel, isAdmin, startConnection } from './net/connection.js';
import { conversations, loadConversations } from './data/conversation_store.js';
import { loadNotebooks } from './data/notebook_store.js';
import { loadPresets } from './data/preset_store.js';
import { loadSamplerTable, refreshSamplerSources } from './sampler/sampler_panel.js';
import { chatView } from './chat/chat_view.js';
import { setModelComing } from './chat/chat.js';
import { exportAll, importFiles } from './chat/conversation_list.js';
import { startServerCopy } from './chat/server_copy.js';
import { notebookView } from './notebook/notebook_view.js';
import { engineView } from './engine/engine_view.js';
import { modelLoading, unloadModel } from './models/model_load.js';
import { openModelMenu } from './models/model_menu.js';
import { modelsView } from './models/models_view.js';
import { registerCommand } from './shell/commands.js';
import { Frame, VIEW_NAMES } from './shell/frame.js';
import { openKeyDialog } from './shell/key_dialog.js';
import { openPalette } from './shell/palette.js';
import { openSettings, openShortcutHelp } from './shell/settings_dialog.js';
import { startShortcuts } from './shell/shortcuts.js';

const go = (path) => {
  const target = `#/${path}`;
  if (location.hash === target) followAddress();
  else location.hash = target;
};

let frame;
const views = {};
let shownName = null;

/** Opens a view where it was left: its conversation, its notebook. */
const openView = (name) => go(views[name].address?.() ?? name);

/** `#/chat/<id>`; unknown views and empty addresses mean chat. */
function readAddress() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const [name, id = ''] = path.split('/');
  return { name: VIEW_NAMES.includes(name) ? name : 'chat', id, options: new URLSearchParams(query) };
}

async function followAddress() {
  const { name, id, options } = readAddress();
  const view = views[name];
  if (name !== shownName) {
    views[shownName]?.hidden?.();
    frame.show(name, view);
    shownName = name;
    view.back?.();
  } else frame.closeSheets();
  await view.open?.(id, options);
  if (name === 'chat' && options.has('text')) view.composer.fillText(options.get('text').slice(0, 100000));
  document.title = `${view.title?.() ?? say(`view.${name}`)} · Pagella`;
  view.shown?.();
}

const looksDark = () => settings.value.theme === 'dark' || (settings.value.theme === 'system' && matchMedia('(prefers-color-scheme: dark)').matches);

function registerCommands() {
  const { commands } = views.chat;
  const inChat = () => shownName === 'chat';
  const chatCommand = (id, title, name) => registerCommand(id, { title: say(title), run: commands[name], available: inChat });
  registerCommand('chat.new', { title: say('chat.new'), run: commands.newChat });
  registerCommand('palette', { title: say('palette.title'), run: () => openPalette((record) => go(`chat/${record.id}`)) });
  registerCommand('list.toggle', { title: say('list.toggle'), run: () => frame.toggle('list') });
  registerCommand('side.toggle', { title: say('side.toggle'), run: () => frame.toggle('side') });
  chatCommand('message.regenerate', 'regenerate', 'regenerate');
  chatCommand('message.continue', 'continue', 'continue');
  chatCommand('message.edit', 'edit', 'edit');
  chatCommand('message.branch', 'branch', 'branch');
  chatCommand('chat.outline', 'outline.title', 'outline');
  chatCommand('chat.compare', 'compare.open', 'compare');
  chatCommand('chat.system', 'system.label', 'system');
  chatCommand('chat.prefix', 'prefix.toggle', 'prefix');
  chatCommand('chat.jump', 'jump', 'jump');
  chatCommand('chat.stop', 'stop', 'stop');
  chatCommand('chat.messages', 'keys.messages', 'focusTranscript');
  for (const name of VIEW_NAMES) registerCommand(`view.${name}`, { title: say(`view.${name}`), run: () => openView(name) });
  registerCommand('help', { title: say('shortcuts.title'), run: openShortcutHelp });
  registerCommand('settings', { title: say('settings.title'), run: openSettings });
  registerCommand('key', { title: say('key.title'), run: openKeyDialog });
  registerCommand('theme', { title: say('theme.switch'), run: () => settings.patch({ theme: looksDark() ? 'light' : 'dark' }) });
  registerCommand('export', { title: say('list.exportAll'), run: exportAll });
  registerCommand('import', { title: say('list.import'), run: importFiles });
  registerCommand('print', { title: say('print'), run: () => print(), available: inChat });
  registerCommand('model.unload', { title: say('model.unload'), run: unloadModel, available: () => isAdmin() && Boolean(currentModel.value) });
}

/** Escape: stop, else close a sheet; fields and dialogs have had their turn before. */
function escapeKey(event) {
  if (event.key !== 'Escape' || event.defaultPrevented || event.isComposing || document.querySelector('dialog[open]')) return;
  if (views[shownName]?.escape?.() || (shownName === 'chat' && views.chat.chat.running())) {
    if (shownName === 'chat') views.chat.commands.stop();
    event.preventDefault();
  } else frame.closeSheets();
}

/** Links in answers show where they lead before they open. */
async function askBeforeLeaving(event) {
  const link = event.target instanceof Element ? event.target.closest('a[data-outside]') : null;
  if (!link || link.textContent === link.href) return;
  event.preventDefault();
  if (await confirmDialog(say('link.title'), link.href, say('link.open'))) open(link.href, '_blank', 'noopener,noreferrer');
}

function watchStates() {
  let asked = false;
  connection.watch(({ state, role }) => {
    document.body.dataset.role = role ?? 'none';
    if (state === 'key' && !asked) { asked = true; openKeyDialog(); }
    if (state === 'ok') { asked = false; refreshSamplerSources(); }
  });
  modelLoading.watch((loading) => {
    setModelComing(Boolean(loading));
    frame.setLoading(loading);
  });
}

async function startPage() {
  applySettings();
  frame = new Frame({ onModel: openModelMenu, onSettings: openSettings, onView: openView });
  document.body.replaceChildren(frame.node);
  placeToasts();
  await Promise.all([loadConversations(), loadNotebooks(), loadPresets(), loadSamplerTable()]);
  Object.assign(views, { chat: chatView({ go }), notebook: notebookView({ go }), engine: engineView(), models: modelsView() });
  registerCommands();
  startShortcuts();
  document.addEventListener('keydown', escapeKey);
  document.addEventListener('click', askBeforeLeaving);
  addEventListener('hashchange', followAddress);
  watchStates();
  startServerCopy();
  const connected = startConnection();
  const fresh = location.hash === '' || location.hash.startsWith('#c=');
  await followAddress();
  await connected;
  // A server without a model: the first thing to do is to load one.
  if (fresh && connection.value.state === 'ok' && !currentModel.value && conversations.value.length === 0) go('models');
  document.documentElement.dataset.ready = '';
}

startPage().catch((error) => {
  document.body.append(button({ label: `${say('start.failed')}: ${error.message}`, variant: 'danger', onClick: () => location.reload() }));
  throw error;
});
