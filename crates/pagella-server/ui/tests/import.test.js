// Export and import: equal trees after a round trip, foreign files, damaged and hostile files.

import test from 'node:test';
import assert from 'node:assert/strict';
import { exportJson, exportMarkdown, exportPlain, fileName } from '../data/export.js';
import { readImport } from '../data/import.js';
import { activePath, newTree } from '../data/tree.js';
import { setSamplerTable } from '../sampler/sampler_table.js';

setSamplerTable({ groups: [], parameters: [{ name: 'temperature', group: 'basic', kind: 'number', min: 0, max: 10, neutral: 1, help: 'Help.' }] });

let next = 0;
const makeId = () => `new${next++}`;
const node = (id, parent, role, content, more) => ({ id, conversation: 'c', parent, role, content, time: 1000 + next++, attachments: [], toolCalls: [], reasoning: '', ...more });
const record = { id: 'c', title: 'A title', created: 5, updated: 6, pinned: true, tags: ['x'], system: 'Be kind', samplers: { temperature: 0.5 }, prefix: '', active: { a: 'b' } };
const nodes = [node('a', null, 'user', 'hi'), node('b', 'a', 'assistant', 'one', { model: 'm', usage: { prompt_tokens: 3, prompt_tokens_details: { cached_tokens: 1 } } }), node('d', 'a', 'assistant', 'two')];
const contents = (path) => path.map((n) => n.content).join('|');

test('export and import give an equal tree with new ids', () => {
  const { conversations, skipped } = readImport(exportJson([{ record, nodes }]), makeId);
  assert.deepEqual(skipped, []);
  const [{ record: copy, nodes: copies }] = conversations;
  assert.notEqual(copy.id, 'c');
  assert.deepEqual([copy.title, copy.system, copy.pinned, copy.tags, copy.samplers], ['A title', 'Be kind', true, ['x'], { temperature: 0.5 }]);
  assert.equal(contents(activePath(newTree(copies, copy.active))), 'hi|one');
  assert.deepEqual(copies[1].usage, nodes[1].usage);
  assert.equal(copies.length, 3);
});

test('lists of messages in other shapes are read', () => {
  const openai = readImport(JSON.stringify([{ role: 'system', content: 's' }, { role: 'user', content: [{ type: 'text', text: 'q' }] }, { role: 'assistant', content: 'a' }]), makeId);
  assert.equal(openai.conversations[0].record.system, 's');
  assert.equal(contents(activePath(newTree(openai.conversations[0].nodes))), 'q|a');
  const other = readImport(JSON.stringify({ conv: { name: 'N' }, messages: [{ id: 1, type: 'root', role: 'system', content: '' }, { id: 2, parent: 1, role: 'user', content: 'q', timestamp: 1 }, { id: 3, parent: 2, role: 'assistant', content: 'a', timestamp: 2 }, { id: 4, parent: 2, role: 'assistant', content: 'b', timestamp: 3 }] }), makeId);
  assert.equal(other.conversations[0].record.title, 'N');
  assert.equal(other.conversations[0].nodes.length, 3);
  assert.equal(contents(activePath(newTree(other.conversations[0].nodes))), 'q|b');
});

test('messages that are stored in any order keep their links', () => {
  const chain = Array.from({ length: 50 }, (_, i) => node(`n${i}`, i ? `n${i - 1}` : null, i % 2 ? 'assistant' : 'user', `${i}`));
  for (const order of [[...chain].reverse(), [...chain.slice(20), ...chain.slice(0, 20)], chain.toSorted((a, b) => (a.id < b.id ? -1 : 1))]) {
    const [{ nodes: copies }] = readImport(exportJson([{ record: { ...record, active: {} }, nodes: order }]), makeId).conversations;
    assert.equal(contents(activePath(newTree(copies))), contents(chain));
  }
});

test('damaged files say what was skipped, and never throw halfway', () => {
  for (const text of ['', '{', '[]', '{}', '"x"', 'null', '[1]', '{"messages": 3}']) assert.throws(() => readImport(text, makeId), /file/);
  const { conversations, skipped } = readImport(JSON.stringify({ format: 'pagella', conversations: [1, { nodes: [{ role: 'root' }, null, { id: 'x', parent: 'y', role: 'user', content: 5 }, { id: 'y', parent: 'x', role: 'user', content: 'k' }, { id: 'z', parent: 'z', role: 'user', content: 'l' }] }] }), makeId);
  assert.equal(skipped.length, 3);
  const tree = newTree(conversations[0].nodes);
  assert.equal(tree.nodes.size, 3);
  assert.ok(activePath(tree).length >= 1);
});

test('hostile fields do not come through', () => {
  const bad = { format: 'pagella', conversations: [{ title: '<img onerror=x>', samplers: { temperature: 99, evil: 1 }, key: 'secret', nodes: [{ id: 'a', role: 'user', content: 'x', attachments: [{ kind: 'image', url: 'https://evil/x.png' }, { kind: 'image', url: 'data:image/svg+xml;base64,AA' }, { kind: 'image', url: 'data:image/png;base64,AA==' }], onclick: 'x' }] }] };
  const [{ record: r, nodes: [n] }] = readImport(JSON.stringify(bad), makeId).conversations;
  assert.deepEqual(r.samplers, {});
  assert.equal(r.key, undefined);
  assert.equal(n.onclick, undefined);
  assert.deepEqual(n.attachments.map((a) => a.url), ['data:image/png;base64,AA==']);
});

test('texts for people', () => {
  assert.match(exportMarkdown(record, nodes.slice(0, 2)), /^# A title\n\n## System\n\nBe kind\n\n## You\n\nhi\n\n## Answer \(m\)\n\none\n$/);
  assert.equal(exportPlain(record, nodes.slice(0, 1)), 'System:\nBe kind\n\nYou:\nhi\n');
  assert.equal(fileName('a/b: <c>', 'json'), 'ab c.json');
});
