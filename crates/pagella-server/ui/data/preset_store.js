// Named presets on this device: sampler values and system prompts.

import { Cell } from '../page/cell.js';
import { dbAll, dbDelete, dbPut } from './database.js';
import { randomId } from './random_id.js';

/** `{id, name, kind: 'samplers'|'system', values, text}`. */
export const presets = new Cell([]);

export async function loadPresets() {
  presets.value = await dbAll('presets');
}

export async function savePreset(fields) {
  const preset = { id: randomId(), values: {}, text: '', ...fields };
  await dbPut('presets', structuredClone(preset));
  presets.value = [...presets.value.filter((p) => p.id !== preset.id), preset].sort((a, b) => a.name.localeCompare(b.name));
  return preset;
}

export async function deletePreset(id) {
  await dbDelete('presets', id);
  presets.value = presets.value.filter((preset) => preset.id !== id);
}

export const presetsOf = (kind) => presets.value.filter((preset) => preset.kind === kind);
