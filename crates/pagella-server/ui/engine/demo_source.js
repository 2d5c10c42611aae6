// A recording to look at without a server: the same messages as the wire, made from a fixed seed, so that
// every run shows the same film. For documentation and tests (`#/engine?demo`).

const DEMO_PAGES = 640;

export class DemoSource {
  #seed = 20260817;
  #seq = 0;
  #jobs = [];
  #pages = Array.from({ length: DEMO_PAGES }, () => ({ state: '.', refs: 0 }));
  #made = 0;

  #random(n) {
    this.#seed = (this.#seed * 48271) % 2147483647;
    return this.#seed % n;
  }

  /** The next message of the page stream. */
  next() {
    const before = this.#pages.map((page) => page.state + page.refs);
    if (this.#jobs.length < 5 && this.#random(4) === 0) this.#start();
    for (const job of [...this.#jobs]) this.#advance(job);
    const jobs = this.#jobs.map(({ mine, ...job }) => ({ ...job, pages: ranges(mine) }));
    this.#seq++;
    if (this.#seq === 1) return { seq: 1, page_size: 256, total: DEMO_PAGES, state: this.#pages.map((p) => p.state).join(''), refs: this.#pages.map((p) => p.refs).join(''), jobs, queue: [] };
    const changes = this.#pages.map((page, i) => [i, page.state, String(page.refs)]).filter(([i, state, refs]) => before[i] !== state + refs);
    return { seq: this.#seq, changes, jobs, queue: this.#made % 7 === 3 ? [{ id: 'demo-waiting', prompt: 9000, need_pages: 40, waited_ms: 120, skips: 1 }] : [] };
  }

  stats() {
    const decoding = this.#jobs.filter((job) => job.phase === 'decode').length;
    return { decode_tokens_per_second: decoding * 58 + this.#random(9), prefill_tokens_per_second: this.#jobs.length > decoding ? 5200 + this.#random(400) : 0, batch_occupancy: decoding, queue: { active: this.#jobs.length, pending: this.#made % 7 === 3 ? 1 : 0 }, cache_hit_ratio: 0.61, preemptions: 0, uptime: this.#seq / 4 };
  }

  #start() {
    const prompt = 256 * (4 + this.#random(30));
    const shared = this.#made % 3 === 0 ? [] : (this.#jobs[0]?.mine.slice(0, 4) ?? []);
    const need = prompt / 256 + 4 - shared.length;
    const free = this.#pages.map((page, i) => (page.refs === 0 ? i : -1)).filter((i) => i >= 0 && !shared.includes(i)).sort((a, b) => (this.#pages[a].state === '.' ? 0 : 1) - (this.#pages[b].state === '.' ? 0 : 1)).slice(0, need);
    const mine = [...shared, ...free];
    mine.forEach((i, at) => { this.#pages[i] = { state: at < shared.length ? 'r' : 'd', refs: this.#pages[i].refs + 1 }; });
    this.#jobs.push({ id: `demo-${String(++this.#made).padStart(4, '0')}`, key: this.#made % 2 ? 'alice' : 'bob', phase: 'prefill', prompt, cached: shared.length * 256, processed: shared.length * 256, generated: 0, max: 512, tps: 0, lora: null, mine });
  }

  #advance(job) {
    const page = (i, state) => { this.#pages[i].state = state; };
    if (job.phase === 'prefill') {
      const from = job.processed / 256;
      job.processed = Math.min(job.prompt, job.processed + 1024);
      const to = job.processed / 256;
      for (let i = 0; i < to; i++) page(job.mine[i], i >= from ? 'f' : 'r');
      if (job.processed === job.prompt) job.phase = 'decode';
      return;
    }
    job.generated += 15;
    job.tps = 58 + this.#random(6);
    const last = Math.floor((job.prompt + job.generated) / 256);
    for (let i = 0; i < last && i < job.mine.length; i++) page(job.mine[i], 'r');
    if (last < job.mine.length) page(job.mine[last], 'g');
    if (job.generated < job.max) return;
    this.#jobs = this.#jobs.filter((other) => other !== job);
    job.mine.forEach((i, at) => {
      this.#pages[i].refs = Math.max(0, this.#pages[i].refs - 1);
      if (this.#pages[i].refs === 0) page(i, at < last ? 'c' : at === last ? 'p' : '.');
    });
  }
}

/** Page numbers as half-open ranges, in order. */
function ranges(pages) {
  const out = [];
  for (const page of pages) {
    if (out.length && out.at(-1)[1] === page) out.at(-1)[1]++;
    else out.push([page, page + 1]);
  }
  return out;
}
