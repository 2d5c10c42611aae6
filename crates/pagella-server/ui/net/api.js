// Requests to the server that served this page, and to nothing else. Paths are relative to the page, so a
// server behind a path prefix works. Owns the key: in memory, and in storage only if asked or given by a link,
// whose key ends with the server that gave it.

import { Cell } from '../page/cell.js';
import { EventStreamReader } from './event_stream.js';

const KEY_STORAGE = 'pagella.key';

/** A refusal by the server, or no answer at all (`status` 0). */
export class ApiError extends Error {
  constructor(message, { status = 0, code = '', param = null, details = null, retryAfter_s = null, body = null } = {}) {
    super(message);
    Object.assign(this, { status, code, param, details, retryAfter_s, body });
  }
}

/** Where a key can be kept beyond this page: a tab keeps it until it is closed, through reloads. */
const KEY_STORES = { tab: 'sessionStorage', device: 'localStorage' };

function keptKey(place) {
  try {
    return globalThis[KEY_STORES[place]].getItem(KEY_STORAGE) ?? '';
  } catch {
    return '';
  }
}

function keepKey(place, key) {
  try {
    if (key) globalThis[KEY_STORES[place]].setItem(KEY_STORAGE, key);
    else globalThis[KEY_STORES[place]].removeItem(KEY_STORAGE);
  } catch {
    // Storage refused: the key lives in memory.
  }
}

export const apiKey = new Cell(keptKey('tab') || keptKey('device'));

/** 'page' (memory only), 'tab' or 'device'. */
export const keyPlace = () => Object.keys(KEY_STORES).find((place) => keptKey(place)) ?? 'page';

/** Takes a key that the person gave, and keeps it in one place. */
export function setKey(key, place = 'page') {
  for (const store of Object.keys(KEY_STORES)) keepKey(store, store === place ? key : '');
  apiKey.value = key;
}

/** Takes a key for this tab alone; what the device remembers stays. */
export function setTabKey(key) {
  keepKey('tab', key);
  apiKey.value = key;
}

/** Forgets a tab's key that is no longer good, for the device's if there is one. Says whether the key changed. */
export function dropTabKey() {
  if (!apiKey.value || keptKey('tab') !== apiKey.value) return false;
  keepKey('tab', '');
  apiKey.value = keptKey('device');
  return true;
}

/** The address of a route, always of this origin. */
export const routeUrl = (path) => new URL(path.replace(/^\//, ''), new URL('./', document.baseURI));

export async function send(method, path, { body, signal, headers } = {}) {
  const all = { ...headers };
  if (apiKey.value) all.Authorization = `Bearer ${apiKey.value}`;
  if (body !== undefined) all['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(routeUrl(path), { method, signal, headers: all, body: body === undefined ? undefined : JSON.stringify(body), credentials: 'omit', cache: 'no-store', redirect: 'error' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('the server does not answer', { code: 'unreachable' });
  }
  if (!response.ok) throw await readError(response);
  return response;
}

async function readError(response) {
  const text = await response.text().catch(() => '');
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // Not JSON (a proxy's page, say): the status must do.
  }
  return Object.assign(toApiError(body?.error ?? {}, response.status, Number(response.headers.get('retry-after')) || null), { body });
}

/** An error object of the wire as an exception. */
export function toApiError(error, status = 200, retryAfter_s = null) {
  const message = typeof error.message === 'string' && error.message ? error.message : `the server answered ${status}`;
  return new ApiError(message, { status, code: error.code ?? '', param: error.param ?? null, details: error.details ?? null, retryAfter_s });
}

export async function getJson(path, options) {
  return readJson(await send('GET', path, options));
}

export async function postJson(path, body = {}, options) {
  return readJson(await send('POST', path, { body, ...options }));
}

async function readJson(response) {
  const text = await response.text();
  return text ? JSON.parse(text) : {};
}

/**
 * Reads a stream of JSON events. `onEvent(value, consumedBytes)` gets each; an error event rejects;
 * `[DONE]` ends. Comments go to `onComment`. `from` is the byte at which the stream is resumed.
 */
export async function readEvents(response, onEvent, { from = 0, onComment } = {}) {
  const reader = new EventStreamReader(from);
  const body = response.body.getReader();
  try {
    for (;;) {
      const { value, done } = await body.read();
      if (done) return false;
      for (const event of reader.push(value)) {
        if (event.data === undefined) onComment?.(event.comment);
        else if (event.data === '[DONE]') return true;
        else {
          const parsed = JSON.parse(event.data);
          if (parsed.error) throw toApiError(parsed.error);
          onEvent(parsed, reader.consumed);
        }
      }
    }
  } catch (error) {
    if (error.name === 'AbortError' || error instanceof ApiError) throw error;
    if (error instanceof SyntaxError) throw new ApiError('the server sent something that is not an event', { code: 'bad_event' });
    throw new ApiError('the connection broke', { code: 'broken' });
  } finally {
    body.cancel().catch(() => {});
  }
}
