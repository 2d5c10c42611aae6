// Running and queued jobs as a table: sortable, rows in a stable order, selectable, cancellable. There is
// no text of prompts here, because the server never sends any.

import { el, fill, setAttribute } from '../page/element.js';
import { button } from '../page/controls.js';
import { formatCount, formatRate, formatSeconds } from '../page/format.js';
import { showError } from '../page/toast.js';
import { say } from '../page/words.js';
import { postJson } from '../net/api.js';

const COLUMNS = [
  ['id', (job) => job.id], ['key', (job) => job.key ?? ''], ['phase', (job) => job.phase ?? ''], ['prompt', (job) => job.prompt], ['cached', (job) => job.cached], ['generated', (job) => job.generated],
  ['limit', (job) => job.max], ['rate', (job) => job.tps], ['age', (job) => job.age_s], ['pages', (job) => job.nPages], ['adapter', (job) => job.lora ?? ''], ['priority', (job) => job.priority], ['skips', (job) => job.skips],
];
const NUMBERS = new Set(['prompt', 'cached', 'generated', 'limit', 'rate', 'age', 'pages', 'priority', 'skips']);

export class JobsTable {
  #rows = new Map();
  #sort = null;
  #seen = new Map();

  /** `onSelect(id or null)` outlines a job's pages. */
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.selected = null;
    this.heads = COLUMNS.map(([name]) => el('th', { scope: 'col', class: NUMBERS.has(name) ? 'num' : '' }, el('button.sort', { type: 'button', on: { click: () => this.#sortBy(name) } }, say(`job.${name}`))));
    this.body = el('tbody');
    this.empty = el('p.plain-note', null, say('jobs.none'));
    this.table = el('table.data.jobs', null, el('caption.offscreen', null, say('jobs.title')), el('thead', null, el('tr', null, this.heads, el('th', null, el('span.offscreen', null, say('job.cancel'))))), this.body);
    this.node = el('div.table-scroll', { tabIndex: 0, role: 'group', 'aria-label': say('jobs.title') }, this.table, this.empty);
  }

  #sortBy(name) {
    const down = this.#sort?.name === name && !this.#sort.down;
    this.#sort = this.#sort?.name === name && this.#sort.down ? null : { name, down };
    this.heads.forEach((head, i) => setAttribute(head, 'aria-sort', COLUMNS[i][0] === this.#sort?.name ? (this.#sort.down ? 'descending' : 'ascending') : null));
    this.#order();
  }

  update(jobs, queue) {
    const now_ms = performance.now();
    const all = [...jobs, ...queue.map((job) => ({ phase: 'queued', age_s: (job.waited_ms ?? 0) / 1000, nPages: job.need_pages, ...job }))];
    const ids = new Set(all.map((job) => job.id));
    for (const [id, row] of this.#rows) if (!ids.has(id)) { row.node.remove(); this.#rows.delete(id); this.#seen.delete(id); }
    for (const job of all) {
      if (!this.#seen.has(job.id)) this.#seen.set(job.id, now_ms);
      const full = { age_s: (now_ms - this.#seen.get(job.id)) / 1000, nPages: (job.pages ?? []).reduce((n, [from, to]) => n + to - from, 0), ...job };
      this.#draw(full);
    }
    this.empty.hidden = all.length > 0;
    this.table.hidden = all.length === 0;
    if (this.#sort) this.#order();
  }

  #draw(job) {
    let row = this.#rows.get(job.id);
    if (!row) {
      const cells = COLUMNS.map(([name]) => el('td', { class: NUMBERS.has(name) ? 'num' : '' }));
      const cancel = button({ label: say('job.cancel'), icon: 'close', onClick: (event) => { event.stopPropagation(); postJson(`v1/requests/${encodeURIComponent(job.id)}/cancel`).catch(showError); } });
      const node = el('tr', { on: { click: () => this.select(this.selected === job.id ? null : job.id) } }, cells, el('td', null, cancel));
      row = { node, cells, bar: el('span.phase-bar', { 'aria-hidden': 'true' }, el('span')) };
      fill(cells[0], el('button.link-button', { type: 'button', title: job.id }, job.id.length > 14 ? `…${job.id.slice(-8)}` : job.id));
      this.#rows.set(job.id, row);
      this.body.append(node);
    }
    row.job = job;
    const text = { phase: say(`phase.name.${['prefill', 'decode', 'queued', 'preempted'].includes(job.phase) ? job.phase : 'other'}`, { phase: job.phase }), rate: formatRate(job.tps), age: formatSeconds(job.age_s) };
    COLUMNS.forEach(([name, get], i) => {
      if (i === 0) return;
      const value = get(job);
      const words = text[name] ?? (NUMBERS.has(name) ? formatCount(value) : String(value));
      if (row.cells[i].textContent !== words) fill(row.cells[i], words, name === 'phase' ? row.bar : null);
    });
    const share = job.phase === 'decode' ? job.generated / (job.max || Infinity) : job.phase === 'prefill' && job.processed !== undefined ? job.processed / job.prompt : 0;
    row.bar.firstChild.style.setProperty('width', `${Math.min(100, 100 * (share || 0))}%`);
    setAttribute(row.node, 'aria-selected', String(job.id === this.selected));
  }

  select(id) {
    this.selected = id;
    for (const [key, row] of this.#rows) setAttribute(row.node, 'aria-selected', String(key === id));
    this.onSelect(id);
  }

  #order() {
    const rows = [...this.#rows.values()];
    const get = COLUMNS.find(([name]) => name === this.#sort?.name)?.[1];
    if (get) rows.sort((a, b) => { const [x, y] = [get(a.job) ?? 0, get(b.job) ?? 0]; return (x < y ? -1 : x > y ? 1 : 0) * (this.#sort.down ? -1 : 1); });
    this.body.append(...rows.map((row) => row.node));
  }
}
