// What a running answer is doing: words, and a bar while the prompt is read, with the part that came from
// the cache in another shade.

import { el, setAttribute, setText } from '../page/element.js';
import { announce } from '../page/announce.js';
import { settings } from '../page/settings.js';
import { formatPercent } from '../page/format.js';
import { say } from '../page/words.js';
import { phaseText } from './statistics.js';

export function progressLine(run) {
  const words = el('span.progress-words');
  const cached = el('span.progress-cached');
  const computed = el('span.progress-computed');
  const bar = el('span.progress-bar', { role: 'progressbar', 'aria-label': say('phase.bar'), 'aria-valuemin': 0, 'aria-valuemax': 100, hidden: true }, cached, computed);
  const node = el('div.progress-line', null, el('span.pulse', { 'aria-hidden': 'true' }), words, bar);
  let spoken = '';
  const unwatch = run.state.watch((state) => {
    setText(words, phaseText(state));
    const { progress } = state;
    const reading = state.phase === 'reading' && progress.total > 0;
    bar.hidden = !reading;
    if (reading) {
      const share = (n) => `${Math.min(100, (100 * n) / progress.total)}%`;
      cached.style.setProperty('width', share(progress.cached));
      computed.style.setProperty('width', share(Math.max(0, progress.processed - progress.cached)));
      setAttribute(bar, 'aria-valuenow', Math.round((100 * progress.processed) / progress.total));
    }
    // One word per phase, and one at every quarter of the prompt.
    const quarter = reading ? Math.floor((4 * progress.processed) / progress.total) : 0;
    const key = `${state.phase}${quarter}`;
    if (key !== spoken && state.phase !== 'done' && settings.value.announce) {
      spoken = key;
      announce(reading ? say('announce.reading', { p: formatPercent(progress.processed / progress.total) }) : phaseText(state));
    }
  });
  node.dispose = unwatch;
  return node;
}
