// Loading and unloading models: one load at a time, its progress as a value, its error kept to be read.

import { Cell } from '../page/cell.js';
import { announce } from '../page/announce.js';
import { formatPercent } from '../page/format.js';
import { showError, toast } from '../page/toast.js';
import { say } from '../page/words.js';
import { postJson, readEvents, send } from '../net/api.js';
import { checkConnection, loadShare } from '../net/connection.js';

/** `{id, part, module, modules, bytes_done, bytes_total, elapsed, status, words}` while a load runs. */
export const modelLoading = new Cell(null);
/** `{id, message, details}` of the last load that failed. */
export const modelLoadError = new Cell(null);

let loadAbort = null;

export async function loadModel(options) {
  if (modelLoading.value) return false;
  const id = options.model_name;
  modelLoadError.value = null;
  const words = (share) => say('load.words', { name: id.split('/').at(-1), p: formatPercent(share) });
  modelLoading.value = { id, part: 'model', module: 0, modules: 0, status: 'queued', words: words(0) };
  loadAbort = new AbortController();
  announce(say('load.started', { name: id }));
  try {
    const response = await send('POST', 'v1/model/load', { body: { ...options, stream: true, cancel_on_disconnect: true }, signal: loadAbort.signal });
    await readEvents(response, (event) => {
      const now = { id, part: event.model_type, module: event.module ?? 0, modules: event.modules ?? 0, bytes_done: event.bytes_done, bytes_total: event.bytes_total, elapsed: event.elapsed, status: event.status };
      modelLoading.value = { ...now, words: words(loadShare(now)) };
    });
    toast(say('load.done', { name: id }));
    return true;
  } catch (error) {
    if (error.name === 'AbortError') toast(say('load.cancelled'));
    else {
      modelLoadError.value = { id, message: error.message, details: error.details };
      showError(error);
    }
    return false;
  } finally {
    loadAbort = null;
    await checkConnection();
    modelLoading.value = null;
  }
}

export const cancelLoad = () => loadAbort?.abort();

export async function unloadModel() {
  try {
    await postJson('v1/model/unload', {});
    toast(say('unload.done'));
  } catch (error) {
    showError(error);
  }
  await checkConnection();
}

/** The memory plan without loading. */
export const planLoad = (options, signal) => postJson('v1/model/load', { ...options, stream: false, dry_run: true }, { signal });
