// The plan that brings a device and the server together, by cases and by random histories of two devices.

import assert from 'node:assert/strict';
import test from 'node:test';
import { planCopies, textStamp } from '../data/copy_plan.js';

const local = (version, changed, deleted = false) => [{ id: 'c', version, changed, deleted }];
const acts = (locals, remote) => planCopies(locals, new Map(remote)).map(({ act, version }) => `${act} ${version}`);

test('every case has its act', () => {
  assert.deepEqual(acts(local(null, true), []), ['push null']);
  assert.deepEqual(acts([], [['c', '5']]), ['pull 5']);
  assert.deepEqual(acts(local('5', false), [['c', '5']]), []);
  assert.deepEqual(acts(local('5', true), [['c', '5']]), ['push 5']);
  assert.deepEqual(acts(local('5', false), [['c', '6']]), ['pull 6']);
  assert.deepEqual(acts(local('5', true), [['c', '6']]), ['fork 6']);
  assert.deepEqual(acts(local(null, true), [['c', '6']]), ['fork 6']);
  assert.deepEqual(acts(local('5', false), []), []);
  assert.deepEqual(acts(local('5', true), []), ['push null']);
  assert.deepEqual(acts(local('5', false, true), [['c', '5']]), ['remove 5']);
  assert.deepEqual(acts(local('5', false, true), [['c', '6']]), []);
  assert.deepEqual(acts(local(null, true, true), []), []);
});

test('texts have stamps', () => {
  assert.equal(textStamp('ab'), textStamp('ab'));
  assert.equal(new Set(['', 'a', 'ab', 'ba', 'ä', 'ab\n'].map(textStamp)).size, 6);
  assert.ok(Number.isSafeInteger(textStamp('x'.repeat(1000))));
});

/** A device and a server as plain maps; the acts as the page carries them out. */
function syncDevice(device, server, nextVersion) {
  const locals = [...device].map(([id, d]) => ({ id, version: d.version, changed: d.text !== d.synced, deleted: false }));
  for (const { act, id, version } of planCopies(locals, new Map([...server].map(([i, s]) => [i, s.version])))) {
    if (act === 'push') {
      const made = nextVersion();
      assert.equal(server.get(id)?.version ?? null, version);
      server.set(id, { version: made, text: device.get(id).text });
      Object.assign(device.get(id), { version: made, synced: device.get(id).text });
    } else {
      if (act === 'fork') device.set(`${id}x${nextVersion()}`, { text: device.get(id).text, version: null, synced: null });
      const { text } = server.get(id);
      device.set(id, { text, version, synced: text });
    }
  }
}

test('two devices come together and no text is lost', () => {
  let seed = 7;
  const random = (n) => { seed = (seed * 1103515245 + 12345) % 2147483648; return Math.floor(seed / 65536) % n; };
  for (let round = 0; round < 200; round++) {
    let version = 0;
    const next = () => String(++version);
    const server = new Map();
    const devices = [new Map(), new Map()];
    // Texts that someone who had read them replaced; all others must be there at the end.
    const written = new Set();
    for (let step = 0; step < 30; step++) {
      const device = devices[random(2)];
      if (random(3) === 0) syncDevice(device, server, next);
      else {
        const id = `c${random(3)}`;
        const text = `${round}.${step}`;
        written.delete(device.get(id)?.text);
        written.add(text);
        device.set(id, { version: null, synced: null, ...device.get(id), text });
      }
    }
    for (let i = 0; i < 3; i++) for (const device of devices) syncDevice(device, server, next);
    const texts = (map) => [...map.values()].map((d) => d.text).sort();
    assert.deepEqual(texts(devices[0]), texts(devices[1]));
    assert.deepEqual(texts(devices[0]), texts(server));
    for (const text of written) assert.ok(texts(server).includes(text), `${text} is lost`);
  }
});
