// Files → conversations. Everything is checked and bounded; unknown fields are dropped, new ids are made,
// so an import can add but never overwrite. Pure: returns what to store and what was skipped.

import { cleanSamplers } from '../sampler/sampler_values.js';

export const IMPORT_BYTES_MAX = 256 * 1024 * 1024;
const NODES_MAX = 100000;
const TEXT_CHARS_MAX = 8 * 1024 * 1024;
const ROLES = new Set(['user', 'assistant', 'system', 'tool']);

const asText = (value, max = TEXT_CHARS_MAX) => (typeof value === 'string' ? value.slice(0, max) : '');
const asTime = (value, fallback) => (Number.isFinite(value) && value > 0 && value < 8.64e15 ? value : fallback);
const asObject = (value) => (value !== null && typeof value === 'object' && !Array.isArray(value) ? value : null);
const asList = (value) => (Array.isArray(value) ? value : []);

/** Numbers only, one level deep and one below: usage and timing. */
function asNumbers(value, depth = 0) {
  const object = asObject(value);
  if (!object || depth > 1) return null;
  const entries = Object.entries(object).slice(0, 50).map(([k, v]) => [k, Number.isFinite(v) ? v : asNumbers(v, depth + 1)]);
  return Object.fromEntries(entries.filter(([, v]) => v !== null));
}

/** Returns `{conversations: [{record, nodes}], notebooks, presets, skipped: [reason…]}`; throws on a file that is none of ours. */
export function readImport(text, makeId, now_ms = Date.now()) {
  if (text.length > IMPORT_BYTES_MAX) throw new Error('the file is larger than 256 MiB');
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error('the file is not JSON');
  }
  const skipped = [];
  const context = { makeId, now_ms, skipped };
  const own = asObject(file)?.format === 'pagella';
  const lists = own ? asList(file.conversations) : foreignConversations(file);
  if (!own && lists.length === 0) throw new Error('the file holds no conversation this page can read');
  return {
    conversations: lists.map((item, i) => readConversation(item, i, context)).filter(Boolean),
    notebooks: own ? asList(file.notebooks).map((n) => readNotebook(n, context)).filter(Boolean) : [],
    presets: own ? asList(file.presets).map((p) => readPreset(p, context)).filter(Boolean) : [],
    skipped,
  };
}

/** llama.cpp exports `{conv, messages}` (one or a list); OpenAI-style files are `{messages}` or a list. */
function foreignConversations(file) {
  const items = Array.isArray(file) && file.length > 0 && file.every((item) => asObject(item)?.role) ? [{ messages: file }] : Array.isArray(file) ? file : [file];
  return items.filter((item) => Array.isArray(asObject(item)?.messages)).map((item) => {
    const head = asObject(item.conv) ?? item;
    const known = new Set(item.messages.map((m) => asObject(m)?.id).filter(Boolean));
    let before = null;
    const nodes = item.messages.filter((m) => asObject(m) && m.type !== 'root').map((m, i) => {
      const linked = m.parent !== undefined && known.has(m.parent) && m.id !== undefined;
      const node = { id: m.id ?? `m${i}`, parent: linked ? m.parent : before, role: m.role, content: messageText(m.content), reasoning: m.reasoning_content ?? m.thinking ?? '', time: m.timestamp, model: m.model };
      before = node.id;
      return node;
    });
    return { title: head.name ?? head.title, created: head.lastModified, nodes };
  });
}

const messageText = (content) => (typeof content === 'string' ? content : asList(content).map((part) => asText(part?.text)).join(''));

function readConversation(item, index, { makeId, now_ms, skipped }) {
  if (!asObject(item) || !Array.isArray(item.nodes)) {
    skipped.push(`conversation ${index + 1}: not a conversation`);
    return null;
  }
  const id = makeId();
  const ids = new Map();
  const nodes = [];
  let system = asText(item.system);
  for (const [i, raw] of item.nodes.slice(0, NODES_MAX).entries()) {
    if (!asObject(raw) || !ROLES.has(raw.role)) {
      skipped.push(`conversation ${index + 1}, message ${i + 1}: unknown role`);
    } else if (raw.role === 'system') {
      system ||= asText(raw.content);
      ids.set(raw.id, ids.get(raw.parent) ?? null);
    } else {
      ids.set(raw.id, makeId());
      nodes.push(readNode(raw, id, ids, now_ms + i));
    }
  }
  if (item.nodes.length > NODES_MAX) skipped.push(`conversation ${index + 1}: more than ${NODES_MAX} messages`);
  const active = Object.fromEntries(Object.entries(asObject(item.active) ?? {}).map(([parent, child]) => [ids.get(parent) ?? 'root', ids.get(child)]).filter(([, child]) => child));
  const record = {
    id, title: asText(item.title, 200) || asText(nodes[0]?.content, 80).split('\n')[0], created: asTime(item.created, now_ms), updated: asTime(item.updated, now_ms),
    pinned: item.pinned === true, tags: asList(item.tags).map((tag) => asText(tag, 40)).filter(Boolean).slice(0, 20), system,
    samplers: cleanSamplers(item.samplers).values, prefix: asText(item.prefix, 10000), active, deleted: null,
  };
  return { record, nodes };
}

/** A parent must come before its children in the file; a link elsewhere is cut, so there are no cycles. */
function readNode(raw, conversation, ids, time) {
  const samplers = asObject(raw.samplers) ? cleanSamplers(raw.samplers).values : null;
  return {
    id: ids.get(raw.id), conversation, parent: raw.parent === raw.id ? null : ids.get(raw.parent) ?? null, role: raw.role, content: asText(raw.content),
    attachments: asList(raw.attachments).map(readAttachment).filter(Boolean), reasoning: asText(raw.reasoning),
    toolCalls: asList(raw.toolCalls).slice(0, 128).map((call) => ({ id: asText(call?.id, 200), name: asText(call?.name, 200), arguments: asText(call?.arguments) })),
    time: asTime(raw.time, time), model: asText(raw.model, 300) || null, adapter: asText(raw.adapter, 300) || null, fingerprint: asText(raw.fingerprint, 100) || null,
    samplers, seed: Number.isFinite(raw.seed) ? raw.seed : null, usage: asNumbers(raw.usage), finish: asText(raw.finish, 40) || null, eosReason: asText(raw.eosReason, 40) || null,
    stopText: asText(raw.stopText, 1024) || null, timing: asNumbers(raw.timing), error: null, warnings: null, stream: null,
  };
}

/** Pictures only as data of an image type; texts with a name. */
function readAttachment(raw) {
  const kind = asObject(raw)?.kind;
  if (kind === 'image' && /^data:image\/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/=]*$/.test(asText(raw.url))) return { kind, name: asText(raw.name, 200), url: raw.url };
  if (kind === 'text') return { kind, name: asText(raw.name, 200), text: asText(raw.text) };
  return null;
}

function readNotebook(raw, { makeId, now_ms }) {
  if (typeof asObject(raw)?.text !== 'string') return null;
  return { id: makeId(), title: asText(raw.title, 200), text: asText(raw.text), created: asTime(raw.created, now_ms), updated: asTime(raw.updated, now_ms), samplers: cleanSamplers(raw.samplers).values };
}

function readPreset(raw, { makeId }) {
  const kind = asObject(raw)?.kind;
  const name = asText(raw?.name, 200);
  if (kind === 'samplers') return { id: makeId(), name, kind, values: cleanSamplers(raw.values).values, text: '' };
  if (kind === 'system') return { id: makeId(), name, kind, values: {}, text: asText(raw.text) };
  return null;
}
