// Small charts on canvas: a sparkline beside each gauge, and the strip of page states over ten minutes.

import { el, setText } from '../page/element.js';
import { formatSeconds } from '../page/format.js';
import { say } from '../page/words.js';
import { pageColours } from './page_map.js';

/** Ten minutes at one sample a second. */
export const HISTORY_MAX = 600;

/** Numbers of the last ten minutes. */
export class History {
  values = [];

  push(value) {
    this.values.push(Number.isFinite(value) ? value : 0);
    if (this.values.length > HISTORY_MAX) this.values.shift();
  }
}

function prepare(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
    canvas.width = width * ratio;
    canvas.height = height * ratio;
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Samples across a chart: a young history is shown wider, down to one minute. */
const windowOf = (samples) => Math.max(60, Math.min(HISTORY_MAX, samples));

export function drawSparkline(canvas, { values }) {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (!width || values.length < 2) return;
  const context = prepare(canvas, width, height);
  const top = Math.max(...values, 1e-9);
  const window = windowOf(values.length);
  const x = (i) => ((window - values.length + i) / (window - 1)) * width;
  const y = (value) => height - 2 - (value / top) * (height - 4);
  context.strokeStyle = context.fillStyle = getComputedStyle(canvas).color;
  context.lineWidth = 1.5;
  context.beginPath();
  values.forEach((value, i) => (i ? context.lineTo(x(i), y(value)) : context.moveTo(x(i), y(value))));
  context.stroke();
  context.globalAlpha = 0.14;
  context.lineTo(x(values.length - 1), height);
  context.lineTo(x(0), height);
  context.fill();
  context.globalAlpha = 1;
}

/** Page states stacked over time, with ticks for evictions and preemptions. */
export class StripChart {
  #samples = [];

  constructor() {
    this.start = el('span');
    this.canvas = el('canvas.strip-canvas', { role: 'img', 'aria-label': say('strip.label') });
    this.node = el('figure.strip', null, this.canvas, el('figcaption', null, this.start, el('span.strip-ticks', null, say('strip.ticks')), el('span', null, say('strip.now'))));
  }

  /** `counts` in the order of the states; `ticks` counts since the last sample. */
  push(counts, { evictions = 0, preemptions = 0 } = {}) {
    this.#samples.push({ counts: [...counts], evictions, preemptions });
    if (this.#samples.length > HISTORY_MAX) this.#samples.shift();
  }

  draw() {
    const width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight;
    if (!width || this.#samples.length === 0) return;
    const context = prepare(this.canvas, width, height);
    const colours = pageColours();
    const window = windowOf(this.#samples.length);
    const step = width / window;
    setText(this.start, say('strip.start', { t: formatSeconds(window) }));
    this.#samples.forEach(({ counts, evictions, preemptions }, i) => {
      const x = width - (this.#samples.length - i) * step;
      const total = counts.reduce((a, b) => a + b, 0) || 1;
      let y = height - 8;
      // Empty pages stay empty paper; the rest is stacked from the busiest up.
      for (const state of [7, 5, 4, 3, 6, 1, 2]) {
        const part = (counts[state] / total) * (height - 10);
        context.fillStyle = colours[state];
        context.fillRect(x, y - part, step + 0.6, part);
        y -= part;
      }
      if (evictions) { context.fillStyle = colours[3]; context.fillRect(x, height - 6, Math.max(1, step), 3); }
      if (preemptions) { context.fillStyle = colours[7]; context.fillRect(x, height - 6, Math.max(1, step), 6); }
    });
  }
}
