// Memory of each device as a bar: weights, cache, other, free. Numbers stand beside it as text.

import { el } from '../page/element.js';
import { formatBytes } from '../page/format.js';
import { say } from '../page/words.js';

/**
 * Devices of a memory plan or of a card: `devices: [{name, parts, total_bytes, weights_bytes,
 * cache_bytes, other_bytes, free_bytes}]`. `parts`: what of a model is there, if there are several. Missing numbers are nought; a plan without devices gives an empty list.
 */
export function memoryDevices(source) {
  const list = source?.devices ?? source?.memory?.devices ?? source?.plan?.devices;
  if (!Array.isArray(list)) return [];
  return list.map((device, i) => {
    const weights = device.weights_bytes ?? 0;
    const cache = device.cache_bytes ?? 0;
    const other = device.other_bytes ?? 0;
    const total = device.total_bytes ?? weights + cache + other + (device.free_bytes ?? 0);
    const name = String(device.name ?? device.device ?? i);
    return { name: device.parts ? `${name} · ${device.parts}` : name, weights, cache, other, total, free: device.free_bytes ?? total - weights - cache - other };
  });
}

export function memoryBars(source) {
  return memoryDevices(source).map(({ name, weights, cache, other, free, total }) => {
    const parts = [['weights', weights], ['cache', cache], ['other', other]];
    const short = free < 0;
    return el('div.memory', { class: short ? 'short' : '' },
      el('div.memory-head', null, el('span', null, name), el('span', null, short ? say('memory.short', { size: formatBytes(-free) }) : say('memory.free', { size: formatBytes(free), total: formatBytes(total) }))),
      el('div.memory-bar', { 'aria-hidden': 'true' }, parts.map(([kind, bytes]) => el(`span.memory-${kind}`, { vars: { width: `${total ? Math.min(100, (100 * bytes) / total) : 0}%` } }))),
      el('div.memory-legend', null, parts.map(([kind, bytes]) => el(`span.key-${kind}`, null, `${say(`memory.${kind}`)} ${formatBytes(bytes)}`))));
  });
}
