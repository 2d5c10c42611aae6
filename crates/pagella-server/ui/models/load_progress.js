// A load that runs: which part, how far, how long, and a way out; or why the last one failed.

import { el, fill, setAttribute, setText } from '../page/element.js';
import { button } from '../page/controls.js';
import { formatBytes, formatSeconds } from '../page/format.js';
import { say } from '../page/words.js';
import { loadShare } from '../net/connection.js';
import { memoryBars } from './memory_bar.js';
import { cancelLoad, modelLoadError, modelLoading } from './model_load.js';

/** Returns a node that follows the load by itself; `dispose` ends that. */
export function loadProgress() {
  const words = el('p.load-words');
  const bar = el('span.progress-computed');
  const track = el('div.progress-bar.wide', { role: 'progressbar', 'aria-label': say('load.bar'), 'aria-valuemin': 0, 'aria-valuemax': 100 }, bar);
  const running = el('div.load-running', { hidden: true }, words, track, button({ label: say('load.cancel'), variant: 'plain', onClick: cancelLoad }));
  const failed = el('div.load-failed', { role: 'alert', hidden: true });
  const node = el('div.load-progress', null, running, failed);
  const unwatch = [modelLoading.watch((now) => {
    running.hidden = !now;
    if (!now) return;
    const share = loadShare(now);
    bar.style.setProperty('width', `${share * 100}%`);
    setAttribute(track, 'aria-valuenow', Math.round(share * 100));
    setText(words, [now.id, say(`load.status.${now.status in LOAD_STATUS ? now.status : 'processing'}`, { part: now.part }),
      now.modules ? say('load.module', { k: now.module, n: now.modules }) : '', now.bytes_total ? `${formatBytes(now.bytes_done)} / ${formatBytes(now.bytes_total)}` : '', now.elapsed ? formatSeconds(now.elapsed) : ''].filter(Boolean).join(' · '));
  }), modelLoadError.watch((error) => {
    failed.hidden = !error;
    if (error) fill(failed, el('strong', null, say('load.failed', { name: error.id })), el('p', null, error.message), memoryBars(error.details));
  })];
  node.dispose = () => unwatch.forEach((end) => end());
  return node;
}

const LOAD_STATUS = { queued: 1, unloading: 1, processing: 1, warmup: 1, finished: 1 };
