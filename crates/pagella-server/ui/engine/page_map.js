// The page map on a canvas: one cell per physical page, wrapped to the width. Only changed cells are
// drawn again. Every state has a sign besides its colour; arrow keys walk, and a table says the same.

import { el, setAttribute, setText } from '../page/element.js';
import { Cell } from '../page/cell.js';
import { formatCount } from '../page/format.js';
import { settings } from '../page/settings.js';
import { say } from '../page/words.js';
import { PAGE_STATES, pagesOfJob } from './page_state.js';

export const ZOOMS = [4, 6, 8, 12, 16, 24];
/** Cells smaller than this show colour and shape only, no digits. */
const SIGN_PX = 12;
const [EMPTY, CACHED, PARTIAL, REFERENCED, FILLING, GENERATING, RESERVED, INCONSISTENT] = PAGE_STATES.map((_, i) => i);

/** Colours by palette and theme, in the order of the states; both chosen for red-green and blue-yellow deficiency. */
const PALETTES = {
  1: { light: ['#b9b4a9', '#7fb4d6', '#b5d3e6', '#0b4f86', '#c96a00', '#00755a', '#8a857a', '#b3123b'], dark: ['#4a4741', '#2f5f80', '#24465c', '#7cc0f0', '#f0a03c', '#4fd0a5', '#7d786e', '#ff6b8a'] },
  2: { light: ['#b9b4a9', '#c3b1dd', '#ded4ec', '#4a2a86', '#8a6d00', '#b0405f', '#8a857a', '#000000'], dark: ['#4a4741', '#54427d', '#3d325a', '#bfa5ff', '#e8cc4a', '#ff8fae', '#7d786e', '#ffffff'] },
};

const isDark = () => settings.value.theme === 'dark' || (settings.value.theme === 'system' && matchMedia('(prefers-color-scheme: dark)').matches);

export const pageColours = () => PALETTES[settings.value.palette === 2 ? 2 : 1][isDark() ? 'dark' : 'light'];

export class PageMap {
  /** Index of the selected page, or null; the job whose pages are outlined, or null. */
  selected = new Cell(null);
  job = null;
  /** State that is shown alone, or null. */
  filter = null;
  zoom = 12;
  #columns = 1;
  #tick = 0;
  #jobPages = new Set();

  constructor(pages) {
    this.pages = pages;
    this.canvas = el('canvas.page-canvas', { tabIndex: 0, role: 'application', 'aria-roledescription': say('map.role'), 'aria-describedby': 'map-summary', on: {
      click: (event) => this.#pick(event), pointermove: (event) => { if (event.pointerType === 'mouse') this.#hover(event); }, keydown: (event) => this.#key(event),
    } });
    this.context = this.canvas.getContext('2d');
    this.summary = el('p.map-summary', { id: 'map-summary' });
    this.detail = el('p.map-detail', { 'aria-live': 'polite' });
    this.node = el('div.page-map', null, this.summary, el('div.map-frame', null, this.canvas), this.detail);
    new ResizeObserver(() => this.redraw()).observe(this.node);
    settings.watch(() => this.redraw(), { now: false });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.redraw());
    this.still = matchMedia('(prefers-reduced-motion: reduce)');
  }

  /** Takes what `PageState.apply` returned. */
  update(change) {
    this.#tick++;
    const jobChanged = this.#readJob();
    if (change.all || jobChanged) this.redraw();
    else if (change.dirty) {
      for (const index of change.dirty) this.#cell(index);
      // Stripes move with the updates; nothing moves between them.
      if (!this.still.matches && this.pages.counts[FILLING]) for (let i = 0; i < this.pages.total; i++) if (this.pages.states[i] === FILLING) this.#cell(i);
    }
    this.#words();
  }

  showJob(id) {
    this.job = id;
    this.#readJob();
    this.redraw();
  }

  #readJob() {
    const pages = pagesOfJob(this.pages.jobs.find((job) => job.id === this.job));
    const changed = pages.length !== this.#jobPages.size || pages.some((page) => !this.#jobPages.has(page));
    this.#jobPages = new Set(pages);
    return changed;
  }

  redraw() {
    const width = this.node.clientWidth;
    if (width === 0 || this.pages.total === 0) return;
    const ratio = devicePixelRatio || 1;
    this.#columns = Math.max(1, Math.floor(width / this.zoom));
    const rows = Math.ceil(this.pages.total / this.#columns);
    this.canvas.width = this.#columns * this.zoom * ratio;
    this.canvas.height = rows * this.zoom * ratio;
    this.canvas.style.setProperty('width', `${this.#columns * this.zoom}px`);
    this.canvas.style.setProperty('height', `${rows * this.zoom}px`);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.colours = pageColours();
    this.paper = getComputedStyle(this.node).getPropertyValue('--paper').trim() || '#fff';
    this.ink = getComputedStyle(this.node).color;
    for (let i = 0; i < this.pages.total; i++) this.#cell(i);
    this.#words();
  }

  #cell(index) {
    const { context, zoom } = this;
    const x = (index % this.#columns) * zoom;
    const y = Math.floor(index / this.#columns) * zoom;
    const state = this.pages.states[index];
    const gap = zoom >= 8 ? 2 : 1;
    const size = zoom - gap;
    context.clearRect(x, y, zoom, zoom);
    const dimmed = (this.job !== null && !this.#jobPages.has(index)) || (this.filter !== null && state !== this.filter);
    context.globalAlpha = dimmed ? 0.18 : 1;
    this.#body(state, x, y, size);
    if (zoom >= SIGN_PX) this.#sign(state, this.pages.refs[index], x, y, size);
    context.globalAlpha = 1;
    if (this.selected.value === index) {
      context.strokeStyle = this.ink;
      context.lineWidth = 2;
      context.strokeRect(x, y, size, size);
    }
  }

  /** Shapes that differ without colour: hollow, outline, filled, half, striped, barred, crossed. */
  #body(state, x, y, size) {
    const { context, colours } = this;
    context.fillStyle = colours[state];
    context.strokeStyle = colours[state];
    context.lineWidth = 1;
    if (state === EMPTY || state === RESERVED) {
      if (state === RESERVED) context.setLineDash([2, 2]);
      context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
      context.setLineDash([]);
      return;
    }
    if (state === PARTIAL) {
      context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
      context.fillRect(x, y + size / 2, size, size / 2);
      return;
    }
    context.fillRect(x, y, size, size);
    if (state === FILLING) this.#stripes(x, y, size);
    if (state === GENERATING) {
      context.fillStyle = this.paper;
      context.fillRect(x + 1, y + size - Math.max(2, size / 4), size - 2, Math.max(1, size / 8));
    }
    if (state === INCONSISTENT) {
      context.strokeStyle = this.paper;
      context.beginPath();
      context.moveTo(x + 1, y + 1);
      context.lineTo(x + size - 1, y + size - 1);
      context.moveTo(x + size - 1, y + 1);
      context.lineTo(x + 1, y + size - 1);
      context.stroke();
    }
  }

  #stripes(x, y, size) {
    const { context } = this;
    const shift = this.still.matches ? 0 : this.#tick % 4;
    context.save();
    context.beginPath();
    context.rect(x, y, size, size);
    context.clip();
    context.strokeStyle = this.paper;
    context.lineWidth = Math.max(1, size / 8);
    for (let at = -size + (shift * size) / 4; at < size * 2; at += Math.max(3, size / 2)) {
      context.beginPath();
      context.moveTo(x + at, y + size);
      context.lineTo(x + at + size, y);
      context.stroke();
    }
    context.restore();
  }

  #sign(state, refs, x, y, size) {
    const { context } = this;
    if (state === CACHED || state === PARTIAL) {
      context.fillStyle = isDark() ? this.ink : this.paper;
      context.beginPath();
      context.arc(x + size / 2, y + (state === PARTIAL ? size * 0.75 : size / 2), Math.max(1.5, size / 7), 0, 7);
      context.fill();
    } else if (refs > 1 && (state === REFERENCED || state === GENERATING || state === FILLING)) {
      context.fillStyle = this.paper;
      context.font = `600 ${Math.round(size * 0.72)}px system-ui, sans-serif`;
      context.textAlign = 'center';
      context.textBaseline = 'middle';
      context.fillText(refs > 9 ? '+' : String(refs), x + size / 2, y + size / 2 + 0.5);
    }
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.zoom);
    const index = Math.floor((event.clientY - box.top) / this.zoom) * this.#columns + column;
    return column >= 0 && column < this.#columns && index >= 0 && index < this.pages.total ? index : null;
  }

  #hover(event) {
    const index = this.#at(event);
    if (index !== null) setAttribute(this.canvas, 'title', this.describe(index));
  }

  #pick(event) {
    this.select(this.#at(event));
  }

  select(index) {
    const before = this.selected.value;
    this.selected.value = index;
    for (const i of [before, index]) if (i !== null && i < this.pages.total) this.#cell(i);
    this.#words();
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.#columns, ArrowDown: this.#columns }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      this.select(Math.max(0, Math.min(this.pages.total - 1, (this.selected.value ?? -step) + step)));
    } else if (event.key === 'Escape' && this.selected.value !== null) {
      event.stopPropagation();
      this.select(null);
    }
  }

  /** One page in words. */
  describe(index) {
    const { pages } = this;
    const jobs = pages.jobsOf(index).map((job) => job.id.slice(-8));
    return [say('map.page', { n: index }), say(`page.${PAGE_STATES[pages.states[index]].name}`), say('map.refs', { n: pages.refs[index] > 35 ? '36+' : pages.refs[index] }), jobs.length ? say('map.jobs', { ids: jobs.join(', ') }) : ''].filter(Boolean).join(' · ');
  }

  #words() {
    const { pages } = this;
    const used = pages.total - pages.counts[EMPTY] - pages.counts[CACHED] - pages.counts[PARTIAL];
    setText(this.summary, say('map.summary', { total: formatCount(pages.total), tokens: formatCount(pages.total * pages.pageTokens), used: formatCount(used), cached: formatCount(pages.counts[CACHED] + pages.counts[PARTIAL]), empty: formatCount(pages.counts[EMPTY]) }) + (pages.counts[INCONSISTENT] ? ` ${say('map.alert', { n: pages.counts[INCONSISTENT] })}` : ''));
    setText(this.detail, this.selected.value === null ? say('map.hint') : this.describe(this.selected.value));
  }
}

/** The same as a table: runs of pages with equal state and count. */
export function pageTable(pages) {
  const rows = [];
  for (let from = 0; from < pages.total && rows.length < 2000; ) {
    let to = from + 1;
    while (to < pages.total && pages.states[to] === pages.states[from] && pages.refs[to] === pages.refs[from]) to++;
    rows.push(el('tr', null, el('td', null, to - from > 1 ? `${from}–${to - 1}` : String(from)), el('td', null, say(`page.${PAGE_STATES[pages.states[from]].name}`)), el('td', null, String(pages.refs[from])), el('td', null, String(to - from))));
    from = to;
  }
  return el('table.data', null, el('caption', null, say('map.table')), el('thead', null, el('tr', null, ['map.pages', 'map.state', 'map.refsHead', 'map.count'].map((key) => el('th', { scope: 'col' }, say(key))))), el('tbody', null, rows));
}

/** Legend with live counts; a press filters. */
export class PageLegend {
  constructor(map) {
    this.map = map;
    this.items = PAGE_STATES.map(({ name }, i) => {
      const count = el('span.legend-count');
      const swatch = el('canvas.legend-swatch', { width: 28, height: 28, 'aria-hidden': 'true' });
      const node = el('button.legend-item', { type: 'button', 'aria-pressed': 'false', title: say(`page.${name}Help`), on: { click: () => { map.filter = map.filter === i ? null : i; map.redraw(); this.update(); } } }, swatch, el('span', null, say(`page.${name}`)), count);
      return { node, count, swatch };
    });
    this.node = el('div.legend', { role: 'group', 'aria-label': say('map.legend') }, this.items.map(({ node }) => node));
  }

  update() {
    const colours = pageColours();
    this.items.forEach(({ node, count, swatch }, i) => {
      setText(count, formatCount(this.map.pages.counts[i]));
      setAttribute(node, 'aria-pressed', String(this.map.filter === i));
      if (swatch.dataset.colour === colours[i]) return;
      swatch.dataset.colour = colours[i];
      drawSwatch(swatch.getContext('2d'), i, colours[i]);
    });
  }
}

function drawSwatch(context, state, colour) {
  context.clearRect(0, 0, 28, 28);
  context.fillStyle = context.strokeStyle = colour;
  context.lineWidth = 2;
  if (state === EMPTY || state === RESERVED) {
    context.setLineDash(state === RESERVED ? [4, 3] : []);
    context.strokeRect(3, 3, 22, 22);
    return;
  }
  if (state === PARTIAL) {
    context.strokeRect(3, 3, 22, 22);
    context.fillRect(2, 14, 24, 12);
    return;
  }
  context.fillRect(2, 2, 24, 24);
  context.strokeStyle = context.fillStyle = isDark() === (state === CACHED) ? '#f5f2ec' : isDark() ? '#171614' : '#fdfcfa';
  if (state === CACHED) { context.beginPath(); context.arc(14, 14, 3.5, 0, 7); context.fill(); }
  if (state === GENERATING) context.fillRect(5, 19, 18, 3);
  if (state === FILLING || state === INCONSISTENT) { context.beginPath(); context.moveTo(4, 24); context.lineTo(24, 4); if (state === INCONSISTENT) { context.moveTo(4, 4); context.lineTo(24, 24); } context.stroke(); }
}
