// The engine view: gauges, page map, jobs. Reads two streams while it is shown and the tab is visible;
// an api key gets totals and its own requests, an admin key the map.

import { el, fill } from '../page/element.js';
import { button, select } from '../page/controls.js';
import { confirmDialog } from '../page/dialog.js';
import { settings } from '../page/settings.js';
import { showError, toast } from '../page/toast.js';
import { say } from '../page/words.js';
import { getJson, postJson, readEvents, routeUrl, send } from '../net/api.js';
import { connection, isAdmin } from '../net/connection.js';
import { StripChart } from './charts.js';
import { DemoSource } from './demo_source.js';
import { GaugeRow } from './gauges.js';
import { JobsTable } from './jobs_table.js';
import { PageLegend, PageMap, ZOOMS, pageTable } from './page_map.js';
import { PageState } from './page_state.js';

const PAGES_EVERY_MS = 250;
const STATS_EVERY_MS = 1000;
const RETRY_STREAM_MS = 3000;

export function engineView() {
  const pages = new PageState();
  const map = new PageMap(pages);
  const legend = new PageLegend(map);
  const strip = new StripChart();
  const gauges = new GaugeRow();
  const jobs = new JobsTable((id) => map.showJob(id));
  const note = el('p.plain-note', { role: 'status' });
  const tableBox = el('div.map-table', { hidden: true });
  let shown = false;
  let demo = null;
  let abort = null;
  let lastStats = null;

  const zoom = select(ZOOMS.map((px) => [String(px), `${px} px`]), String(map.zoom), (value) => { map.zoom = Number(value); map.redraw(); });
  zoom.setAttribute('aria-label', say('map.zoom'));
  const palette = select([['1', say('palette.1')], ['2', say('palette.2')]], String(settings.value.palette), (value) => { settings.patch({ palette: Number(value) }); legend.update(); });
  palette.setAttribute('aria-label', say('map.palette'));
  const asTable = button({ label: say('map.asTable'), variant: 'plain', 'aria-pressed': 'false', onClick: () => {
    tableBox.hidden = !tableBox.hidden;
    asTable.setAttribute('aria-pressed', String(!tableBox.hidden));
    map.canvas.hidden = !tableBox.hidden;
    drawTable();
  } });
  const clear = button({ label: say('cache.clear'), variant: 'plain', onClick: async () => {
    if (await confirmDialog(say('cache.clear'), say('cache.clearSure'), say('cache.clear'))) postJson('v1/cache/clear').then(() => toast(say('cache.cleared')), showError);
  } });
  const mapPart = el('section.card.map-card', { 'aria-labelledby': 'map-title' }, el('div.card-head', null, el('h2', { id: 'map-title' }, say('map.title')), el('div.card-tools', null, zoom, palette, asTable, clear)), legend.node, map.node, tableBox, strip.node);
  const jobPart = el('section.card', { 'aria-labelledby': 'jobs-title' }, el('h2', { id: 'jobs-title' }, say('jobs.title')), jobs.node);
  const main = el('section.engine', { 'aria-label': say('view.engine') }, el('div.engine-column', null, note, gauges.node, mapPart, jobPart, el('p.plain-note', null, el('a', { href: routeUrl('metrics').href, target: '_blank', rel: 'noopener' }, say('metrics.link')))));

  const drawTable = () => { if (!tableBox.hidden) fill(tableBox, pageTable(pages)); };

  /** Returns whether the stream must be opened again. */
  function takePages(message) {
    const change = pages.apply(message);
    if (change.stale) return false;
    map.update(change);
    legend.update();
    jobs.update(pages.jobs, pages.queue);
    return true;
  }

  function takeStats({ engine, ...rest }) {
    // The engine's own numbers stand in an object of their own, which is null without a model.
    const stats = { ...rest, ...engine };
    gauges.update(stats);
    if (pages.total) {
      strip.push(pages.counts, { evictions: (stats.evictions ?? 0) - (lastStats?.evictions ?? stats.evictions ?? 0), preemptions: (stats.preemptions ?? 0) - (lastStats?.preemptions ?? stats.preemptions ?? 0) });
      strip.draw();
      drawTable();
    }
    lastStats = stats;
  }

  async function follow(path, take, signal) {
    while (!signal.aborted) {
      let stale = false;
      try {
        const response = await send('GET', path, { signal });
        // A missed number: leave the stream and ask for a new snapshot.
        await readEvents(response, (message) => { if (take(message) === false) throw new DOMException('stale', 'AbortError'); });
      } catch (error) {
        if (signal.aborted) return;
        if ([404, 501, 503].includes(error.status)) note.textContent = error.message;
        stale = error.name === 'AbortError';
      }
      await new Promise((resolve) => setTimeout(resolve, stale ? PAGES_EVERY_MS : RETRY_STREAM_MS));
    }
  }

  async function followRequests(signal) {
    while (!signal.aborted) {
      const list = await getJson('v1/requests', { signal }).catch(() => null);
      if (list) {
        const all = (list.data ?? []).map((r) => ({ ...r, prompt: r.prompt_tokens, generated: r.completion_tokens, age_s: r.age }));
        jobs.update(all.filter((r) => r.phase !== 'queued'), all.filter((r) => r.phase === 'queued'));
      }
      await new Promise((resolve) => setTimeout(resolve, STATS_EVERY_MS));
    }
  }

  function start() {
    stop();
    if (!shown || document.hidden) return;
    mapPart.hidden = !demo && !isAdmin();
    clear.hidden = Boolean(demo);
    if (demo) return startDemo();
    if (connection.value.state !== 'ok') return undefined;
    note.textContent = isAdmin() ? '' : say('engine.apiNote');
    abort = new AbortController();
    const { signal } = abort;
    follow(`v1/stats?stream=1&interval=${STATS_EVERY_MS}`, takeStats, signal);
    if (isAdmin()) follow(`v1/cache/pages?stream=1&interval=${PAGES_EVERY_MS}`, takePages, signal);
    else followRequests(signal);
    return undefined;
  }

  function startDemo() {
    note.textContent = say('engine.demo');
    abort = new AbortController();
    let tick = 0;
    const timer = setInterval(() => {
      takePages(demo.next());
      if (tick++ % 4 === 0) takeStats(demo.stats());
    }, PAGES_EVERY_MS);
    abort.signal.addEventListener('abort', () => clearInterval(timer));
  }

  function stop() {
    abort?.abort();
    abort = null;
  }

  document.addEventListener('visibilitychange', start);
  let key = '';
  connection.watch(({ state, role }) => { if (`${state}${role}` !== key) { key = `${state}${role}`; start(); } }, { now: false });
  return {
    main,
    async open(id, options) {
      shown = true;
      demo = options?.has('demo') ? (demo ?? new DemoSource()) : null;
      start();
    },
    hidden() {
      shown = false;
      stop();
    },
  };
}
