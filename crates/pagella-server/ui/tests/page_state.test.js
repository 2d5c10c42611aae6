// The page map's copy of the cache: changes equal snapshots, gaps are noticed, hostile messages are harmless.

import test from 'node:test';
import assert from 'node:assert/strict';
import { PAGE_STATES, PageState, pagesOfJob } from '../engine/page_state.js';

const SIGNS = PAGE_STATES.map(({ sign }) => sign);

test('random changes give the same map as a snapshot', () => {
  let seed = 7;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  const live = new PageState();
  const truth = Array.from({ length: 500 }, () => ['.', '0']);
  const snapshot = (seq) => ({ seq, page_size: 256, total: 500, state: truth.map(([s]) => s).join(''), refs: truth.map(([, r]) => r).join('') });
  assert.deepEqual(live.apply(snapshot(1)), { all: true });
  for (let seq = 2; seq < 300; seq++) {
    const changes = Array.from({ length: random(20) }, () => [random(500), SIGNS[random(SIGNS.length)], '0123z+'[random(6)]]);
    for (const [i, s, r] of changes) truth[i] = [s, r];
    assert.ok(live.apply({ seq, changes }).dirty);
  }
  const fresh = new PageState();
  fresh.apply(snapshot(1));
  assert.deepEqual([live.states, live.refs, live.counts], [fresh.states, fresh.refs, fresh.counts]);
  assert.equal(live.counts.reduce((a, b) => a + b), 500);
});

test('a gap or an impossible page asks for a new snapshot', () => {
  const pages = new PageState();
  assert.deepEqual(pages.apply({ seq: 5, changes: [] }), { stale: true });
  pages.apply({ seq: 1, total: 4, state: 'cr.g', refs: '0120' });
  assert.deepEqual(pages.apply({ seq: 3, changes: [] }), { stale: true });
  assert.deepEqual(pages.apply({ seq: 2, changes: [[4, 'c', '0']] }), { stale: true });
});

test('an unknown state is shown as inconsistent', () => {
  const pages = new PageState();
  pages.apply({ seq: 1, total: 2, state: '?c', refs: '00' });
  assert.equal(PAGE_STATES[pages.states[0]].name, 'inconsistent');
});

test('jobs know their pages, pages their jobs', () => {
  const pages = new PageState();
  const job = { id: 'a', pages: [[0, 2], [3, 4]] };
  pages.apply({ seq: 1, total: 4, state: 'rr.g', refs: '1101', jobs: [job], queue: [] });
  assert.deepEqual(pagesOfJob(job), [0, 1, 3]);
  assert.equal(pages.jobsOf(3)[0].id, 'a');
  assert.deepEqual(pages.jobsOf(2), []);
});
