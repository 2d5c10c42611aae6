// Whether the server is there, who we are to it, and which model it has. Polls gently while all is well
// and with a growing pause while it is not; everything local keeps working meanwhile.

import { Cell } from '../page/cell.js';
import { ApiError, apiKey, getJson, postJson, setKey } from './api.js';

const POLL_MS = 10000;
const RETRY_MS_MAX = 30000;

/** `state`: 'connecting' | 'ok' | 'key' (a key is needed) | 'lost'. `role`: 'api' | 'admin' | null. */
export const connection = new Cell({ state: 'connecting', role: null, keyName: null, ready: false, retryAt_ms: 0, version: null });

/** The loaded model's card, or null. */
export const currentModel = new Cell(null);

let checkTimer = 0;
let retry_ms = 1000;

export const isAdmin = () => connection.value.role === 'admin';

/** The context size of a card, in tokens. */
export const contextTokens = (card) => card?.parameters?.max_seq_len ?? card?.max_model_len ?? null;

export const hasCapability = (card, name) => Boolean(card?.capabilities?.includes(name) || (name === 'vision' && card?.parameters?.use_vision));

/** Asks the server now and plans the next time. */
export async function checkConnection() {
  clearTimeout(checkTimer);
  let wait_ms = POLL_MS;
  try {
    const ready = await getJson('health/ready').then(() => true, (error) => {
      if (error.status === 0) throw error;
      return false;
    });
    const who = await getJson('v1/auth/permission');
    connection.patch({ state: 'ok', role: who.permission, keyName: who.name ?? null, ready });
    await refreshModel();
    retry_ms = 1000;
  } catch (error) {
    wait_ms = connectionFailed(error);
  }
  checkTimer = setTimeout(checkConnection, document.hidden ? wait_ms * 3 : wait_ms);
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
export async function refreshModel() {
  try {
    const card = await getJson('v1/model');
    if (JSON.stringify(card) !== JSON.stringify(currentModel.value)) currentModel.value = card;
  } catch (error) {
    if (error.status === 503 || error.status === 404) currentModel.value = null;
    else throw error;
  }
}

/** Takes a one-time code out of the address bar and exchanges it for a key. Runs before anything else. */
export async function exchangeCode() {
  const match = /^#c=([A-Za-z0-9_-]{8,128})$/.exec(location.hash);
  if (!match) return;
  history.replaceState(null, '', location.pathname + location.search);
  try {
    const { key } = await postJson('ui/exchange', { code: match[1] });
    if (typeof key === 'string') setKey(key, false);
  } catch {
    // Used or old: the page asks for a key as usual.
  }
}

/** Starts watching; a new key or a tab that comes back asks at once. */
export async function startConnection() {
  await exchangeCode();
  apiKey.watch(() => checkConnection(), { now: false });
  document.addEventListener('visibilitychange', () => { if (!document.hidden) checkConnection(); });
  addEventListener('online', () => checkConnection());
  await checkConnection();
}
