// Notebooks on this device.

import { Cell } from '../page/cell.js';
import { settings } from '../page/settings.js';
import { askPersistence, dbAll, dbDelete, dbPut } from './database.js';
import { randomId } from './random_id.js';

/** `{id, title, text, created, updated, samplers}`, newest first. */
export const notebooks = new Cell([]);

export async function loadNotebooks() {
  notebooks.value = (await dbAll('notebooks')).sort((a, b) => b.updated - a.updated);
}

export function newNotebook() {
  const now_ms = Date.now();
  return { id: randomId(), title: '', text: '', created: now_ms, updated: now_ms, samplers: { ...settings.value.samplersForNew } };
}

export async function saveNotebook(notebook) {
  askPersistence();
  notebook.updated = Date.now();
  notebook.title = notebook.named ? notebook.title : notebook.text.trim().split('\n')[0].slice(0, 60);
  notebooks.value = [notebook, ...notebooks.value.filter((n) => n.id !== notebook.id)];
  await dbPut('notebooks', structuredClone(notebook));
}

export async function deleteNotebook(id) {
  notebooks.value = notebooks.value.filter((n) => n.id !== id);
  await dbDelete('notebooks', id);
}
