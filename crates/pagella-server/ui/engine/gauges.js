// Gauges: the engine's numbers as text, each with ten minutes of history.

import { el, setText } from '../page/element.js';
import { formatBytes, formatCount, formatPercent, formatRate, formatSeconds } from '../page/format.js';
import { say } from '../page/words.js';
import { History, drawSparkline } from './charts.js';
import { describeGuesses, shareGuessedRight } from './guesses.js';

/** `[name, value of stats, text of both]`. A gauge whose value the server does not send is not shown. */
const GAUGES = [
  ['decode', (s) => s.decode_tokens_per_second, (v) => `${formatRate(v)} tok/s`],
  ['prefill', (s) => s.prefill_tokens_per_second, (v) => `${formatRate(v)} tok/s`],
  ['occupancy', (s) => s.batch_occupancy, (v) => formatRate(v)],
  ['active', (s) => s.queue?.active ?? s.requests?.running, formatCount],
  ['waiting', (s) => s.queue?.pending ?? s.requests?.waiting, formatCount],
  ['hits', (s) => s.cache_hit_ratio, formatPercent],
  ['draft', shareGuessedRight, describeGuesses],
  ['p50', (s) => s.step_time_p50 ?? s.iteration_time_p50, formatSeconds],
  ['p99', (s) => s.step_time_p99 ?? s.iteration_time_p99, formatSeconds],
  ['memory', (s) => s.device_memory_bytes, formatBytes],
  ['heartbeat', (s) => (s.heartbeat_ms === undefined ? undefined : s.heartbeat_ms / 1000), formatSeconds],
  ['preemptions', (s) => s.preemptions, formatCount],
  ['uptime', (s) => s.uptime ?? s.uptime_seconds, formatSeconds],
];

export class GaugeRow {
  constructor() {
    this.gauges = GAUGES.map(([name, get, text]) => {
      const value = el('span.gauge-value', null, '–');
      const canvas = el('canvas.sparkline', { 'aria-hidden': 'true' });
      const node = el('div.gauge', { title: say(`gauge.${name}Help`), hidden: true, data: { gauge: name } }, el('span.gauge-name', null, say(`gauge.${name}`)), value, canvas);
      return { get, text, value, canvas, node, history: new History() };
    });
    this.node = el('div.gauges', null, this.gauges.map((gauge) => gauge.node));
  }

  update(stats) {
    for (const gauge of this.gauges) {
      const now = gauge.get(stats);
      gauge.node.hidden = typeof now !== 'number';
      if (gauge.node.hidden) continue;
      gauge.history.push(now);
      setText(gauge.value, gauge.text(now, stats));
      drawSparkline(gauge.canvas, gauge.history);
    }
  }
}
