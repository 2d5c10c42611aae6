// Where keys are kept, and when the dot is green.

import test from 'node:test';
import assert from 'node:assert/strict';

class FakeStorage extends Map {
  getItem(name) { return this.get(name) ?? null; }
  setItem(name, value) { this.set(name, value); }
  removeItem(name) { this.delete(name); }
}
const define = (name, value) => Object.defineProperty(globalThis, name, { value, configurable: true });
define('localStorage', new FakeStorage());
define('sessionStorage', new FakeStorage());
const { apiKey, dropTabKey, keyPlace, setKey, setTabKey } = await import('../net/api.js');
const { loadShare, modelState } = await import('../net/connection.js');
const kept = () => [...sessionStorage.values(), '/', ...localStorage.values()].join(' ');

test('a key that was typed is kept nowhere unless asked', () => {
  setKey('typed');
  assert.deepEqual([apiKey.value, kept(), keyPlace()], ['typed', '/', 'page']);
  setKey('typed', 'device');
  assert.deepEqual([kept(), keyPlace()], ['/ typed', 'device']);
  setKey('typed', 'tab');
  assert.deepEqual([kept(), keyPlace()], ['typed /', 'tab']);
  setKey('');
  assert.equal(kept(), '/');
});

test('the key of a link lasts as long as its tab, beside the one of the device', () => {
  setKey('own', 'device');
  setTabKey('linked');
  assert.deepEqual([apiKey.value, kept()], ['linked', 'linked / own']);
  // The server that gave it has ended.
  assert.ok(dropTabKey());
  assert.deepEqual([apiKey.value, kept()], ['own', '/ own']);
  assert.ok(!dropTabKey(), 'a key of the device is not forgotten by itself');
});

test('the dot is green only while the server says that it is ready', () => {
  const model = { id: 'demo' };
  const ok = { state: 'ok', ready: true, health: { engine: { state: 'idle' } } };
  assert.equal(modelState(ok, model), 'loaded');
  assert.equal(modelState({ ...ok, state: 'lost' }, model), 'unknown');
  assert.equal(modelState({ ...ok, state: 'key' }, model), 'unknown');
  assert.equal(modelState({ ...ok, ready: false }, model), 'waiting');
  assert.equal(modelState({ ...ok, ready: false, health: { engine: { state: 'loading' } } }, null), 'loading');
  assert.equal(modelState({ ...ok, ready: false }, null), 'none');
  assert.equal(modelState(ok, model, true), 'loading');
  assert.equal(modelState({ state: 'ok', ready: false, health: null }, model), 'waiting');
});

test('a load says how far it is, by bytes where they are known', () => {
  assert.equal(loadShare({ module: 1, modules: 4 }), 0.25);
  assert.equal(loadShare({ module: 1, modules: 4, bytes_done: 1, bytes_total: 2 }), 0.5);
  assert.equal(loadShare(null), 0);
});
