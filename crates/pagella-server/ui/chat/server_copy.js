// A copy of the conversations on the server, for the key in use; off unless the person wants it and the
// operator allows it. What has to be done is planned in data/copy_plan.js; here it is done. A record's
// `copy` is what both sides last agreed on: the server's version and a stamp of the text.

import { afterQuiet } from '../page/cell.js';
import { settings } from '../page/settings.js';
import { showError, toast } from '../page/toast.js';
import { say } from '../page/words.js';
import { getJson, send } from '../net/api.js';
import { connection } from '../net/connection.js';
import { acquireLock } from '../data/tab_lock.js';
import { randomId } from '../data/random_id.js';
import { conversationById, conversations, copyConversation, destroyedConversations, forgetDestroyed, hearSaves, openTree, replaceConversation, saveConversation } from '../data/conversation_store.js';
import { exportJson } from '../data/export.js';
import { readImport } from '../data/import.js';
import { planCopies, textStamp } from '../data/copy_plan.js';
import { runOfConversation } from './answer_run.js';

const COPY_QUIET_MS = 3000;
/** How often a page that is looked at asks what other devices did. */
const COPY_LOOK_MS = 60000;
const STORE_PATH = 'v1/ui/store';

/** Conversations that this tab saved since they were last compared; null: all have to be. */
let unsure = null;
let copying = false;
/** The conversation that is being copied now: it is saved for that, too. */
let copiedId = null;

const documentText = async (record) => exportJson([{ record, nodes: [...(await openTree(record)).nodes.values()] }]);
const versionHeader = (version) => (version === null ? {} : { 'If-Match': `"${version}"` });

const syncSoon = afterQuiet(COPY_QUIET_MS, () => syncCopies());

/** Whether the server keeps copies for this key; throws why not. */
export const checkServerCopy = () => getJson(STORE_PATH);

/** What this device has, for the plan. Texts are read only where something may have changed. */
async function localCopies(ids) {
  const locals = [];
  for (const record of conversations.value) {
    const looks = !record.deleted && (ids === null || ids.has(record.id) || !record.copy);
    const changed = looks && record.copy?.stamp !== textStamp(await documentText(record));
    locals.push({ id: record.id, version: record.copy?.version ?? null, changed, deleted: Boolean(record.deleted) });
  }
  for (const mark of destroyedConversations()) locals.push({ id: mark.id, version: mark.copy?.version ?? null, changed: false, deleted: true });
  return locals;
}

const remember = (record, copy) => saveConversation(Object.assign(record, { copy }), { touch: false });

async function pushCopy(id, version) {
  const record = conversationById(id);
  const text = await documentText(record);
  const response = await send('PUT', `${STORE_PATH}/${id}`, { body: JSON.parse(text), headers: versionHeader(version) });
  await remember(record, { version: (await response.json()).version, stamp: textStamp(text) });
}

/** Takes the server's text. It is checked like a file that is imported, and keeps its id. */
async function pullCopy(id, version) {
  const found = readImport(JSON.stringify(await getJson(`${STORE_PATH}/${id}`)), randomId).conversations[0];
  // Written to meanwhile: look again before anything is replaced.
  if (unsure.has(id)) syncSoon();
  if (!found || unsure.has(id)) return;
  // The same object, where there is one: whoever shows the conversation holds it.
  const record = Object.assign(conversationById(id) ?? {}, found.record, { id });
  await replaceConversation(record, found.nodes.map((node) => ({ ...node, conversation: id })));
  await remember(record, { version, stamp: textStamp(await documentText(record)) });
}

const COPY_ACTS = {
  push: pushCopy,
  pull: pullCopy,
  fork: async (id, version) => {
    const record = conversationById(id);
    const mine = await copyConversation(record);
    await saveConversation(Object.assign(mine, { title: say('copy.fork', { title: record.title || say('untitled') }) }), { touch: false });
    await pullCopy(id, version);
    toast(say('copy.forked', { title: record.title || say('untitled') }));
  },
  remove: async (id, version) => {
    await send('DELETE', `${STORE_PATH}/${id}`, { headers: versionHeader(version) });
    const record = conversationById(id);
    if (record) await remember(record, null);
    else await forgetDestroyed(id);
  },
};

async function copyAll() {
  const { data } = await getJson(STORE_PATH);
  const ids = unsure;
  unsure = new Set();
  try {
    const remote = new Map(data.map(({ id, version }) => [id, version]));
    const plan = planCopies(await localCopies(ids), remote);
    for (const { id } of destroyedConversations()) if (!remote.has(id)) await forgetDestroyed(id);
    for (const { act, id, version } of plan) {
      // A conversation that is being answered changes all the time: its end is a save as well.
      copiedId = id;
      if (runOfConversation(id)) unsure.add(id);
      else await COPY_ACTS[act](id, version);
    }
  } catch (error) {
    unsure = null;
    throw error;
  } finally {
    copiedId = null;
  }
}

/** Brings both sides together, in one tab at a time. */
async function syncCopies() {
  if (!settings.value.serverCopy || connection.value.state !== 'ok') return;
  if (copying) {
    syncSoon();
    return;
  }
  copying = true;
  const release = await acquireLock('server-copy');
  try {
    if (release) await copyAll();
  } catch (error) {
    if (error.status === 501) {
      settings.patch({ serverCopy: false });
      toast(say('copy.off'), { tone: 'error', ms: 8000 });
    } else if (error.status === 409) syncSoon();
    else if (error.status !== 0) showError(error);
  } finally {
    copying = false;
    await release?.();
  }
}


export function startServerCopy() {
  hearSaves((id) => {
    unsure?.add(id);
    if (id !== copiedId) syncSoon();
  });
  let wanted = false;
  const look = () => {
    const now = settings.value.serverCopy && connection.value.state === 'ok';
    if (now && !wanted) {
      unsure = null;
      syncCopies();
    }
    wanted = now;
  };
  settings.watch(look);
  connection.watch(look);
  const lookAgain = () => { if (!document.hidden) syncCopies(); };
  document.addEventListener('visibilitychange', lookAgain);
  setInterval(lookAgain, COPY_LOOK_MS);
}
