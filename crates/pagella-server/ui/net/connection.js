// Whether the server is there, who we are to it, and which model it has. Polls gently while all is well
// and with a growing pause while it is not; everything local keeps working meanwhile.

import { Cell } from '../page/cell.js';
import { ApiError, apiKey, dropTabKey, getJson, postJson, setTabKey } from './api.js';

const POLL_MS = 10000;
/** Between two looks while the server gets ready. */
const UNREADY_MS = 1500;
const RETRY_MS_MAX = 30000;

/**
 * `state`: 'connecting' | 'ok' | 'key' (a key is needed) | 'lost'. `role`: 'api' | 'admin' | null. `health`: what the
 * server last said of itself. `link`: why the terminal's link gave no key, as `{message, keysFile}`.
 */
export const connection = new Cell({ state: 'connecting', role: null, keyName: null, ready: false, health: null, link: null, retryAt_ms: 0 });

/** The loaded model's card, or null. */
export const currentModel = new Cell(null);

let checkTimer = 0;
let lookNumber = 0;
let retry_ms = 1000;
/** The code of the terminal's link, until the server has seen it. */
let linkCode = null;

export const isAdmin = () => connection.value.role === 'admin';

/** The context size of a card, in tokens. */
export const contextTokens = (card) => card?.parameters?.max_seq_len ?? card?.max_model_len ?? null;

export const hasCapability = (card, name) => Boolean(card?.capabilities?.includes(name) || (name === 'vision' && card?.parameters?.use_vision));

/** Asks the server now and plans the next time. A newer question makes the answer to this one void. */
export async function checkConnection() {
  clearTimeout(checkTimer);
  const number = ++lookNumber;
  let wait_ms = POLL_MS;
  try {
    await redeemLink();
    const { ready, health } = await readHealth();
    const who = await getJson('v1/auth/permission');
    if (number !== lookNumber) return;
    await refreshModel();
    connection.patch({ state: 'ok', role: who.permission, keyName: who.name ?? null, ready, health, link: null });
    retry_ms = 1000;
    if (!ready) wait_ms = UNREADY_MS;
  } catch (error) {
    if (number !== lookNumber) return;
    if (error.status === 401 && dropTabKey()) {
      await checkConnection();
      return;
    }
    wait_ms = connectionFailed(error);
  }
  if (number === lookNumber) checkTimer = setTimeout(checkConnection, document.hidden ? wait_ms * 3 : wait_ms);
}

/** What the server says of itself; 503 is an answer too. */
async function readHealth() {
  try {
    return { ready: true, health: await getJson('health/ready') };
  } catch (error) {
    if (error.status === 0) throw error;
    return { ready: false, health: error.body };
  }
}

/** How the model stands, for the dot: green only where the server says that it is ready. `loading`: this page loads one. */
export function modelState({ state, ready, health }, model, loading = false) {
  if (loading) return 'loading';
  if (state !== 'ok') return 'unknown';
  if (!ready && health?.engine?.state === 'loading') return 'loading';
  if (!model) return 'none';
  return ready ? 'loaded' : 'waiting';
}

/** The share of a load that is done, 0–1. */
export function loadShare(now) {
  if (now?.bytes_total > 0) return now.bytes_done / now.bytes_total;
  return now?.modules > 0 ? now.module / now.modules : 0;
}

function connectionFailed(error) {
  if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
    connection.patch({ state: 'key', role: null, ready: false });
    return POLL_MS * 6;
  }
  retry_ms = Math.min(RETRY_MS_MAX, retry_ms * 1.6);
  connection.patch({ state: 'lost', ready: false, retryAt_ms: Date.now() + retry_ms });
  return retry_ms;
}

/** Reads the card of the loaded model; none loaded is an ordinary state. */
async function refreshModel() {
  try {
    const card = await getJson('v1/model');
    if (JSON.stringify(card) !== JSON.stringify(currentModel.value)) currentModel.value = card;
  } catch (error) {
    if (error.status === 503 || error.status === 404) currentModel.value = null;
    else throw error;
  }
}

/** Takes a one-time code out of the address bar. Runs before anything else. */
function takeLinkCode() {
  linkCode = /^#c=([A-Za-z0-9_-]{8,128})$/.exec(location.hash)?.[1] ?? null;
  if (linkCode) history.replaceState(null, '', location.pathname + location.search);
}

/** Exchanges the code for a key of this tab, as soon as there is a server to ask. */
async function redeemLink() {
  if (!linkCode) return;
  try {
    const { key } = await postJson('ui/exchange', { code: linkCode });
    linkCode = null;
    if (typeof key === 'string') setTabKey(key);
  } catch (error) {
    if (error.status === 0) throw error;
    // Used or old: a key that this tab has may still be good, else the page asks for one and says why.
    linkCode = null;
    connection.patch({ link: { message: error.message, keysFile: error.details?.keys_file ?? null } });
  }
}

/** Starts watching; a new key or a tab that comes back asks at once. */
export async function startConnection() {
  takeLinkCode();
  await checkConnection();
  apiKey.watch(() => checkConnection(), { now: false });
  document.addEventListener('visibilitychange', () => { if (!document.hidden) checkConnection(); });
  addEventListener('online', () => checkConnection());
}
