// The message tree: paths, siblings, removal with undo, copies; and random scripts that keep it whole.

import test from 'node:test';
import assert from 'node:assert/strict';
import { activePath, addNode, childrenOf, copyNodes, newTree, pathTo, removeOnly, removeSubtree, restoreOnly, restoreSubtree, showNode, showSibling, siblingsOf } from '../data/tree.js';

let clock = 0;
const node = (id, parent, role = 'user') => ({ id, parent, role, content: id, time: ++clock });
const ids = (nodes) => nodes.map((n) => n.id).join('');

function sample() {
  const tree = newTree();
  for (const [id, parent] of [['a', null], ['b', 'a'], ['c', 'b'], ['d', 'c'], ['e', 'a'], ['f', 'e']]) addNode(tree, node(id, parent));
  return tree;
}

test('the newest branch is shown, and siblings switch', () => {
  const tree = sample();
  assert.equal(ids(activePath(tree)), 'aef');
  assert.deepEqual(siblingsOf(tree, 'e'), { ids: ['b', 'e'], index: 1 });
  assert.equal(showSibling(tree, 'e', 1), null);
  assert.equal(showSibling(tree, 'e', -1), 'b');
  assert.equal(ids(activePath(tree)), 'abcd');
  showNode(tree, 'f');
  assert.equal(ids(activePath(tree)), 'aef');
  assert.equal(ids(pathTo(tree, 'd')), 'abcd');
});

test('removal and undo give the same tree back', () => {
  const tree = sample();
  showNode(tree, 'd');
  const removed = removeSubtree(tree, 'c');
  assert.equal(ids(activePath(tree)), 'ab');
  restoreSubtree(tree, removed);
  assert.equal(ids(activePath(tree)), 'abcd');
  const one = removeOnly(tree, 'b');
  assert.equal(ids(activePath(tree)), 'acd');
  restoreOnly(tree, one);
  assert.equal(ids(activePath(tree)), 'abcd');
  assert.equal(ids(childrenOf(tree, 'a')), 'be');
});

test('a lost parent does not hide its children', () => {
  const tree = newTree([node('x', 'gone'), node('y', 'x')]);
  assert.equal(ids(activePath(tree)), 'xy');
});

test('copies have new ids and the same links', () => {
  const tree = sample();
  let next = 0;
  const copies = copyNodes(pathTo(tree, 'd'), 'other', () => `n${next++}`);
  assert.equal(ids(activePath(newTree(copies))), 'n0n1n2n3');
  assert.ok(copies.every((copy) => copy.conversation === 'other'));
});

test('random scripts keep every node reachable and undo exact', () => {
  for (let seed = 1; seed < 200; seed++) {
    let state = seed;
    const random = (n) => (state = (state * 48271) % 2147483647) % n;
    const tree = newTree();
    for (let step = 0; step < 40; step++) {
      const all = [...tree.nodes.keys()];
      const pick = all[random(Math.max(1, all.length))];
      const before = JSON.stringify([...tree.nodes.values()].map((n) => [n.id, n.parent]).sort());
      if (!pick || random(3) > 0) addNode(tree, node(`s${step}`, pick && random(5) ? pick : null));
      else {
        if (random(2)) restoreOnly(tree, removeOnly(tree, pick));
        else restoreSubtree(tree, removeSubtree(tree, pick));
        assert.equal(JSON.stringify([...tree.nodes.values()].map((n) => [n.id, n.parent]).sort()), before);
      }
      const seen = new Set();
      const visit = (id) => childrenOf(tree, id).forEach((child) => { assert.ok(!seen.has(child.id)); seen.add(child.id); visit(child.id); });
      visit(null);
      assert.equal(seen.size, tree.nodes.size);
    }
  }
});
