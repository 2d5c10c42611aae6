// Conversations on this device: the list, the open trees, saving, the bin. The only file that writes them.

import { Cell } from '../page/cell.js';
import { settings } from '../page/settings.js';
import { askPersistence, dbAll, dbDelete, dbNodesOf, dbPut } from './database.js';
import { randomId } from './random_id.js';
import { hearTabs, tellTabs } from './tab_lock.js';
import { activePath, addNode, copyNodes, newTree, pathTo } from './tree.js';

const BIN_DAYS = 7;
const TITLE_CHARS_MAX = 80;

/** Records of all conversations, the bin's included; newest first. */
export const conversations = new Cell([]);

/**
 * What is left of conversations that were deleted for good while the server may have a copy: `{id, gone, copy}`. It
 * would come back without its mark.
 */
let marks = [];

export const destroyedConversations = () => marks;

/** The server has no copy any more. */
export async function forgetDestroyed(id) {
  marks = marks.filter((mark) => mark.id !== id);
  await dbDelete('conversations', id);
}

/** Trees that were opened, by conversation id. */
const openTrees = new Map();

const byNewest = (a, b) => (b.pinned ? 1 : 0) - (a.pinned ? 1 : 0) || b.updated - a.updated;

export async function loadConversations() {
  await readRecords();
  const old_ms = Date.now() - BIN_DAYS * 86400000;
  for (const record of conversations.value.filter((r) => r.deleted && r.deleted < old_ms)) await destroyConversation(record.id);
  hearTabs((message) => { if (message.conversations) refreshFromTab(message); });
}

async function readRecords() {
  const records = await dbAll('conversations');
  marks = records.filter((record) => record.gone);
  conversations.value = records.filter((record) => !record.gone).sort(byNewest);
}

/** Another tab saved something: take its word from storage. */
async function refreshFromTab(message) {
  await readRecords();
  if (openTrees.has(message.conversations)) {
    openTrees.delete(message.conversations);
    treeChangedElsewhere.value = message.conversations;
    treeChangedElsewhere.value = null;
  }
}

/** Set to a conversation's id for a moment when another tab changed its messages. */
export const treeChangedElsewhere = new Cell(null);

/** Set to a conversation's id for a moment when this tab put other messages in place of its own. */
export const conversationReplaced = new Cell(null);

/** Called with the id of each conversation that this tab saved. */
const saveListeners = new Set();

export const hearSaves = (listener) => saveListeners.add(listener);

function tellSaved(id) {
  tellTabs({ conversations: id });
  for (const listener of saveListeners) listener(id);
}

export const conversationById = (id) => conversations.value.find((record) => record.id === id) ?? null;

/** A new record; it is stored with its first message. */
export function newConversation(fields = {}) {
  const now_ms = Date.now();
  const record = { id: randomId(), title: '', created: now_ms, updated: now_ms, pinned: false, tags: [], system: '', samplers: { ...settings.value.samplersForNew }, prefix: '', active: {}, deleted: null, ...fields };
  openTrees.set(record.id, newTree());
  return record;
}

/** The tree of a conversation, read once. */
export async function openTree(record) {
  if (!openTrees.has(record.id)) openTrees.set(record.id, newTree(await dbNodesOf(record.id), record.active));
  return openTrees.get(record.id);
}

/** Saves the record and shows it in the list. */
export async function saveConversation(record, { touch = true } = {}) {
  if (touch) record.updated = Date.now();
  const tree = openTrees.get(record.id);
  if (tree) record.active = tree.active;
  const others = conversations.value.filter((r) => r.id !== record.id);
  conversations.value = [record, ...others].sort(byNewest);
  await dbPut('conversations', structuredClone(record));
  tellSaved(record.id);
}

/** Saves messages only. During an answer this is called often; other tabs hear of it each time. */
export async function saveNodes(...nodes) {
  askPersistence();
  await dbPut('nodes', ...nodes.map((node) => structuredClone(node)));
  if (nodes.length) tellSaved(nodes[0].conversation);
}

export async function dropNodes(nodes) {
  await dbDelete('nodes', ...nodes.map((node) => node.id));
}

/** A message with all fields a node has. */
export function newNode(record, parent, role, fields = {}) {
  return {
    id: randomId(), conversation: record.id, parent, role, content: '', attachments: [], reasoning: '', toolCalls: [], time: Date.now(),
    model: null, adapter: null, fingerprint: null, samplers: null, seed: null, usage: null, finish: null, eosReason: null, stopText: null,
    timing: null, error: null, warnings: null, stream: null, ...fields,
  };
}

/** Adds a message to its tree and saves both. The first own message names the conversation. */
export async function appendNode(record, tree, node) {
  addNode(tree, node);
  if (!record.title && node.role === 'user') record.title = titleFrom(node.content);
  await saveNodes(node);
  await saveConversation(record);
  return node;
}

/** The first line with words, cut at a word. */
export function titleFrom(text) {
  const line = text.split('\n').map((l) => l.replace(/^[#>*\-\s]+/, '').trim()).find(Boolean) ?? '';
  if (line.length <= TITLE_CHARS_MAX) return line;
  return `${line.slice(0, TITLE_CHARS_MAX).replace(/\s+\S*$/, '')}…`;
}

export async function binConversations(ids, deleted = Date.now()) {
  for (const id of ids) {
    const record = conversationById(id);
    if (record) await saveConversation(Object.assign(record, { deleted }), { touch: false });
  }
}

/** Removes a conversation for good. */
export async function destroyConversation(id) {
  const copy = conversationById(id)?.copy ?? null;
  await dropNodes(await dbNodesOf(id));
  if (copy || settings.value.serverCopy) {
    const mark = { id, gone: true, copy };
    marks = [...marks, mark];
    await dbPut('conversations', mark);
  } else await dbDelete('conversations', id);
  openTrees.delete(id);
  conversations.value = conversations.value.filter((record) => record.id !== id);
  tellSaved(id);
}

/** Puts other messages in place of a conversation's; whoever shows it reads it again. */
export async function replaceConversation(record, nodes) {
  await dropNodes(await dbNodesOf(record.id));
  openTrees.delete(record.id);
  await saveNodes(...nodes);
  await saveConversation(record, { touch: false });
  conversationReplaced.value = record.id;
  conversationReplaced.value = null;
}

/** Copies a conversation: the whole tree, or the path to one message. */
export async function copyConversation(record, upTo = null) {
  const tree = await openTree(record);
  const copy = newConversation({ title: record.title, system: record.system, samplers: structuredClone(record.samplers), tags: [...record.tags] });
  const nodes = upTo ? pathTo(tree, upTo) : [...tree.nodes.values()];
  const copies = copyNodes(nodes, copy.id, randomId);
  const ids = new Map(nodes.map((node, i) => [node.id, copies[i].id]));
  const active = Object.fromEntries(Object.entries(tree.active).map(([parent, child]) => [ids.get(parent) ?? parent, ids.get(child)]).filter(([, child]) => child));
  copy.active = upTo ? {} : active;
  openTrees.set(copy.id, newTree(copies, copy.active));
  await saveNodes(...copies);
  await saveConversation(copy);
  return copy;
}

/** Searches titles first, then texts; calls `onFound` as results come. */
export async function searchConversations(words, onFound, isCurrent = () => true) {
  const needles = words.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (text) => needles.every((needle) => text.toLowerCase().includes(needle));
  const live = conversations.value.filter((record) => !record.deleted);
  for (const record of live) if (matches(`${record.title} ${record.tags.join(' ')}`)) onFound(record, null);
  for (const record of live) {
    if (!isCurrent()) return;
    const nodes = openTrees.has(record.id) ? [...openTrees.get(record.id).nodes.values()] : await dbNodesOf(record.id);
    const hit = nodes.find((node) => matches(node.content));
    if (hit) onFound(record, hit);
  }
}

/** The shown messages of a conversation, for reading and exporting. */
export async function shownMessages(record) {
  return activePath(await openTree(record));
}
