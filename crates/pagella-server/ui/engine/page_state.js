// The cache's pages as the server tells them: a snapshot, then changes. Pure. A missed number means that
// the copy is stale, and `apply` says so.

/** States in order of a page's life; `name` is a word of the strings table. */
export const PAGE_STATES = [
  { sign: '.', name: 'empty' }, { sign: 'c', name: 'cached' }, { sign: 'p', name: 'partial' }, { sign: 'r', name: 'referenced' },
  { sign: 'f', name: 'filling' }, { sign: 'g', name: 'generating' }, { sign: 'd', name: 'reserved' }, { sign: '#', name: 'inconsistent' },
];
const STATE_OF = new Map(PAGE_STATES.map(({ sign }, i) => [sign, i]));
const PAGES_MAX = 1 << 20;

export class PageState {
  total = 0;
  pageTokens = 256;
  seq = null;
  states = new Uint8Array(0);
  refs = new Uint8Array(0);
  counts = new Array(PAGE_STATES.length).fill(0);
  jobs = [];
  queue = [];

  /** Takes a message. Returns `{all: true}`, `{dirty: [index…]}`, or `{stale: true}`. */
  apply(message) {
    this.jobs = Array.isArray(message.jobs) ? message.jobs : this.jobs;
    this.queue = Array.isArray(message.queue) ? message.queue : this.queue;
    if (typeof message.state === 'string') return this.#snapshot(message);
    if (this.seq === null || message.seq !== this.seq + 1) return { stale: true };
    this.seq = message.seq;
    const dirty = [];
    for (const [index, state, refs] of message.changes ?? []) {
      if (!Number.isInteger(index) || index < 0 || index >= this.total) return { stale: true };
      this.#set(index, state, refs);
      dirty.push(index);
    }
    return { dirty };
  }

  #snapshot(message) {
    const total = Math.min(message.total ?? message.state.length, message.state.length, PAGES_MAX);
    this.seq = message.seq ?? 0;
    this.pageTokens = message.page_size ?? 256;
    this.total = total;
    this.states = new Uint8Array(total);
    this.refs = new Uint8Array(total);
    this.counts.fill(0);
    this.counts[0] = total;
    for (let i = 0; i < total; i++) this.#set(i, message.state[i], message.refs?.[i] ?? '0');
    return { all: true };
  }

  #set(index, state, refs) {
    const code = STATE_OF.get(state) ?? STATE_OF.get('#');
    this.counts[this.states[index]]--;
    this.counts[code]++;
    this.states[index] = code;
    this.refs[index] = readRefs(refs);
  }

  /** Jobs that use a page. */
  jobsOf(index) {
    return this.jobs.filter((job) => (job.pages ?? []).some(([from, to]) => index >= from && index < to));
  }
}

/** A base-36 digit; `+` is "more than 35". */
const readRefs = (text) => (text === '+' ? 36 : Number.parseInt(text, 36) || 0);

/** Pages of a job in their order. */
export function pagesOfJob(job) {
  const pages = [];
  for (const [from, to] of job?.pages ?? []) for (let i = from; i < to && pages.length < PAGES_MAX; i++) pages.push(i);
  return pages;
}
