// The list at the left: search, open, rename, pin, tag, duplicate, export, delete, bin.

import { el, fill } from '../page/element.js';
import { afterQuiet } from '../page/cell.js';
import { button } from '../page/controls.js';
import { chooseFiles, saveFile } from '../page/clipboard.js';
import { confirmDialog, openDialog, promptDialog } from '../page/dialog.js';
import { formatWhen } from '../page/format.js';
import { openMenu } from '../page/menu.js';
import { showError, toast } from '../page/toast.js';
import { say } from '../page/words.js';
import { binConversations, conversationById, conversations, copyConversation, destroyConversation, openTree, saveConversation, saveNodes, searchConversations, shownMessages } from '../data/conversation_store.js';
import { dbPut } from '../data/database.js';
import { exportJson, exportMarkdown, exportPlain, fileName } from '../data/export.js';
import { IMPORT_BYTES_MAX, readImport } from '../data/import.js';
import { loadNotebooks, notebooks } from '../data/notebook_store.js';
import { loadPresets, presets } from '../data/preset_store.js';
import { randomId } from '../data/random_id.js';
import { answersRunning, runOfConversation } from './answer_run.js';

/** `{openId(), onOpen(record), onNew()}`. */
export function conversationList({ openId, onOpen, onNew }) {
  const search = el('input.list-search', { type: 'search', placeholder: say('list.search'), 'aria-label': say('list.search'), id: 'conversation-search' });
  const rows = el('ul.list-rows', { 'aria-label': say('list.label') });
  const chosen = new Set();
  let searchNumber = 0;
  let selecting = false;
  const more = button({ label: say('list.more'), icon: 'more', 'aria-haspopup': 'menu', onClick: () => openMenu(more, [
    { label: say('list.select'), icon: 'check', run: () => { selecting = !selecting; chosen.clear(); draw(); } },
    { label: say('list.import'), icon: 'upload', run: importFiles },
    { label: say('list.exportAll'), icon: 'download', run: exportAll },
    { label: say('list.bin'), icon: 'bin', run: () => openBin(onOpen) },
  ]) });
  const bar = el('div.list-selection', { hidden: true });

  const drawRows = (items) => fill(rows, items.length ? items.map(([record, hit]) => row(record, hit)) : el('li.list-empty', null, say(search.value ? 'list.noHits' : 'list.empty')));

  function row(record, hit) {
    const open = record.id === openId();
    const menu = button({ label: say('list.rowMenu', { title: record.title }), icon: 'more', 'aria-haspopup': 'menu', onClick: () => openMenu(menu, rowItems(record, onOpen)) });
    const box = selecting ? el('input', { type: 'checkbox', checked: chosen.has(record.id), 'aria-label': record.title, on: { change: (event) => { if (event.target.checked) chosen.add(record.id); else chosen.delete(record.id); drawBar(); } } }) : null;
    return el('li.list-row', { class: open ? 'open' : '' }, box,
      el('a', { href: `#/chat/${record.id}`, 'aria-current': open ? 'page' : undefined },
        el('span.list-title', null, record.pinned ? '★ ' : '', record.title || say('untitled')),
        hit ? el('span.list-hit', null, excerpt(hit.content, search.value)) : null,
        el('span.list-meta', null, runOfConversation(record.id) ? el('span.pulse', { role: 'img', 'aria-label': say('phase.answering') }) : null, formatWhen(record.updated), record.tags.map((tag) => el('span.tag', null, tag)))), menu);
  }

  function drawBar() {
    bar.hidden = !selecting;
    fill(bar, el('span', null, say('list.chosen', { n: chosen.size })),
      button({ label: say('delete'), icon: 'bin', disabled: chosen.size === 0, onClick: () => { binWithUndo([...chosen]); selecting = false; draw(); } }),
      button({ label: say('done'), variant: 'link', onClick: () => { selecting = false; draw(); } }));
  }

  function draw() {
    drawBar();
    const number = ++searchNumber;
    if (!search.value.trim()) return drawRows(conversations.value.filter((r) => !r.deleted).map((r) => [r, null]));
    const found = new Map();
    searchConversations(search.value, (record, hit) => {
      if (number !== searchNumber || (found.has(record.id) && !hit)) return;
      found.set(record.id, [record, hit ?? found.get(record.id)?.[1]]);
      drawRows([...found.values()]);
    }, () => number === searchNumber).then(() => { if (number === searchNumber && found.size === 0) drawRows([]); });
    return undefined;
  }

  search.addEventListener('input', afterQuiet(150, draw));
  conversations.watch(() => draw());
  answersRunning.watch(() => draw(), { now: false });
  const node = el('div.list-panel', null, el('div.list-head', null, button({ label: say('chat.new'), icon: 'plus', showLabel: true, variant: 'primary', keys: 'Ctrl+Shift+O', onClick: onNew }), more), search, bar, rows);
  return { node, draw };
}

/** The words around the first hit. */
function excerpt(text, words) {
  const needle = words.toLowerCase().split(/\s+/)[0];
  const at = Math.max(0, text.toLowerCase().indexOf(needle) - 30);
  return `${at ? '…' : ''}${text.slice(at, at + 90).replace(/\s+/g, ' ')}`;
}

/** Menu of one conversation, also used by the palette. */
export function rowItems(record, onOpen) {
  return [
    { label: say('rename'), icon: 'edit', run: async () => { const title = await promptDialog(say('rename'), say('title'), record.title); if (title) saveConversation(Object.assign(record, { title }), { touch: false }); } },
    { label: say(record.pinned ? 'unpin' : 'pin'), icon: 'pin', run: () => saveConversation(Object.assign(record, { pinned: !record.pinned }), { touch: false }) },
    { label: say('tags.edit'), run: async () => { const tags = await promptDialog(say('tags.edit'), say('tags.label'), record.tags.join(', ')); if (tags !== undefined) saveConversation(Object.assign(record, { tags: tags.split(',').map((t) => t.trim()).filter(Boolean).slice(0, 20) }), { touch: false }); } },
    { label: say('duplicate'), icon: 'copy', run: async () => onOpen(await copyConversation(record)) }, null,
    { label: say('export.json'), icon: 'download', run: () => exportOne(record, 'json') },
    { label: say('export.markdown'), icon: 'download', run: () => exportOne(record, 'md') },
    { label: say('export.plain'), icon: 'download', run: () => exportOne(record, 'txt') }, null,
    { label: say('delete'), icon: 'bin', danger: true, run: () => binWithUndo([record.id]) },
  ];
}

export async function binWithUndo(ids) {
  await binConversations(ids);
  toast(say('deleted.conversations', { n: ids.length }), { action: [say('undo'), () => binConversations(ids, null)] });
}

async function exportOne(record, ending) {
  const path = await shownMessages(record);
  const text = ending === 'json' ? exportJson([{ record, nodes: [...(await openTree(record)).nodes.values()] }]) : ending === 'md' ? exportMarkdown(record, path) : exportPlain(record, path);
  saveFile(fileName(record.title, ending), text, ending === 'json' ? 'application/json' : 'text/plain');
}

export async function exportAll() {
  const items = [];
  for (const record of conversations.value.filter((r) => !r.deleted)) items.push({ record, nodes: [...(await openTree(record)).nodes.values()] });
  saveFile(fileName('pagella', 'json'), exportJson(items, { notebooks: notebooks.value, presets: presets.value }));
}

export async function importFiles() {
  for (const file of await chooseFiles('.json,application/json', true)) {
    try {
      if (file.size > IMPORT_BYTES_MAX) throw new Error('the file is larger than 256 MiB');
      const found = readImport(await file.text(), randomId);
      for (const { record, nodes } of found.conversations) {
        await saveNodes(...nodes);
        await saveConversation(record, { touch: false });
      }
      await dbPut('notebooks', ...found.notebooks);
      await dbPut('presets', ...found.presets);
      await Promise.all([loadNotebooks(), loadPresets()]);
      toast(say('import.done', { n: found.conversations.length, skipped: found.skipped.length }), found.skipped.length ? { action: [say('details'), () => openDialog(say('import.skipped'), () => el('ul', null, found.skipped.slice(0, 200).map((line) => el('li', null, line))))] } : {});
    } catch (error) {
      showError(error);
    }
  }
}

function openBin(onOpen) {
  return openDialog(say('list.bin'), (close) => {
    const list = el('ul.bin-rows');
    const draw = () => {
      const gone = conversations.value.filter((record) => record.deleted);
      fill(list, gone.length ? gone.map((record) => el('li', null, el('span', null, record.title || say('untitled')), el('small', null, formatWhen(record.deleted)),
        button({ label: say('restore'), variant: 'plain', onClick: async () => { await binConversations([record.id], null); close(); onOpen(conversationById(record.id)); } }),
        button({ label: say('destroy'), variant: 'danger', onClick: async () => { if (await confirmDialog(say('destroy'), say('destroy.sure'), say('destroy'), { danger: true })) { await destroyConversation(record.id); draw(); } } })))
        : el('li', null, say('bin.empty')));
    };
    draw();
    return [el('p', null, say('bin.help')), list];
  });
}
