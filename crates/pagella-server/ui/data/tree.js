// A conversation as a tree of messages. Pure functions over a plain map; nothing here touches storage or
// the screen. Invariants: every node's parent is null or in the map, there are no cycles, and `active`
// names, for a parent, the child that is shown. A missing entry means the newest child.

/** The key of `active` for messages without a parent. */
export const TREE_ROOT = 'root';

export function newTree(nodes = [], active = {}) {
  const tree = { nodes: new Map(), children: new Map(), active: { ...active } };
  for (const node of nodes) tree.nodes.set(node.id, node);
  for (const node of nodes) {
    // A parent that is gone (a damaged import, a half-finished write) must not hide its children.
    if (node.parent !== null && !tree.nodes.has(node.parent)) node.parent = null;
  }
  for (const node of nodes) childIds(tree, node.parent).push(node.id);
  for (const ids of tree.children.values()) ids.sort((a, b) => compareNodes(tree.nodes.get(a), tree.nodes.get(b)));
  return tree;
}

const compareNodes = (a, b) => a.time - b.time || (a.id < b.id ? -1 : 1);

function childIds(tree, parent) {
  const key = parent ?? TREE_ROOT;
  if (!tree.children.has(key)) tree.children.set(key, []);
  return tree.children.get(key);
}

/** Children of a node, oldest first; `null` gives the first messages. */
export const childrenOf = (tree, id) => (tree.children.get(id ?? TREE_ROOT) ?? []).map((child) => tree.nodes.get(child));

/** The shown child of a node, or null. */
export function activeChild(tree, id) {
  const ids = tree.children.get(id ?? TREE_ROOT) ?? [];
  const chosen = tree.active[id ?? TREE_ROOT];
  return tree.nodes.get(ids.includes(chosen) ? chosen : ids.at(-1)) ?? null;
}

/** The shown messages, first to last. */
export function activePath(tree) {
  const path = [];
  for (let node = activeChild(tree, null); node; node = activeChild(tree, node.id)) path.push(node);
  return path;
}

/** From the first message to `id`, whether shown or not. */
export function pathTo(tree, id) {
  const path = [];
  for (let node = tree.nodes.get(id); node; node = tree.nodes.get(node.parent)) path.push(node);
  return path.reverse();
}

/** Adds a node and shows it. */
export function addNode(tree, node) {
  if (tree.nodes.has(node.id)) throw new Error(`message ${node.id} is already there`);
  if (node.parent !== null && !tree.nodes.has(node.parent)) throw new Error(`message ${node.parent} does not exist`);
  tree.nodes.set(node.id, node);
  childIds(tree, node.parent).push(node.id);
  tree.active[node.parent ?? TREE_ROOT] = node.id;
  return node;
}

/** The alternatives of a node and its place among them. */
export function siblingsOf(tree, id) {
  const ids = childIds(tree, tree.nodes.get(id).parent);
  return { ids: [...ids], index: ids.indexOf(id) };
}

/** Shows the sibling `step` places on; returns its id, or null at an end. */
export function showSibling(tree, id, step) {
  const { ids, index } = siblingsOf(tree, id);
  const next = ids[index + step];
  if (next === undefined) return null;
  tree.active[tree.nodes.get(id).parent ?? TREE_ROOT] = next;
  return next;
}

/** Makes the path to `id` the shown one. */
export function showNode(tree, id) {
  for (const node of pathTo(tree, id)) tree.active[node.parent ?? TREE_ROOT] = node.id;
}

/** The node and everything below it, parents before children. */
export function subtreeOf(tree, id) {
  const found = [tree.nodes.get(id)];
  for (let i = 0; i < found.length; i++) found.push(...childrenOf(tree, found[i].id));
  return found;
}

/** Takes the node and all below it out; returns them, for undo. */
export function removeSubtree(tree, id) {
  const removed = subtreeOf(tree, id);
  const parent = removed[0].parent;
  tree.children.set(parent ?? TREE_ROOT, childIds(tree, parent).filter((child) => child !== id));
  for (const node of removed) {
    tree.nodes.delete(node.id);
    tree.children.delete(node.id);
  }
  return removed;
}

/** Takes one node out; its children move up to its parent. Returns what undo needs. */
export function removeOnly(tree, id) {
  const node = tree.nodes.get(id);
  const moved = childrenOf(tree, id).map((child) => child.id);
  const shown = activeChild(tree, id);
  tree.nodes.delete(id);
  tree.children.delete(id);
  const ids = childIds(tree, node.parent).filter((child) => child !== id).concat(moved);
  ids.sort((a, b) => compareNodes(tree.nodes.get(a), tree.nodes.get(b)));
  tree.children.set(node.parent ?? TREE_ROOT, ids);
  for (const child of moved) tree.nodes.get(child).parent = node.parent;
  if (shown) tree.active[node.parent ?? TREE_ROOT] = shown.id;
  return { node, moved };
}

/** Undoes `removeSubtree`. */
export function restoreSubtree(tree, removed) {
  for (const node of removed) {
    tree.nodes.set(node.id, node);
    childIds(tree, node.parent).push(node.id);
  }
  for (const node of removed) childIds(tree, node.parent).sort((a, b) => compareNodes(tree.nodes.get(a), tree.nodes.get(b)));
  showNode(tree, removed[0].id);
}

/** Undoes `removeOnly`. */
export function restoreOnly(tree, { node, moved }) {
  tree.nodes.set(node.id, node);
  const ids = childIds(tree, node.parent).filter((child) => !moved.includes(child)).concat(node.id);
  ids.sort((a, b) => compareNodes(tree.nodes.get(a), tree.nodes.get(b)));
  tree.children.set(node.parent ?? TREE_ROOT, ids);
  tree.children.set(node.id, moved);
  for (const child of moved) tree.nodes.get(child).parent = node.id;
  showNode(tree, node.id);
}

/** Copies of `nodes` with new ids, for a new conversation; links among them are kept. */
export function copyNodes(nodes, conversation, makeId) {
  const ids = new Map(nodes.map((node) => [node.id, makeId()]));
  return nodes.map((node) => ({
    ...structuredClone(node),
    id: ids.get(node.id),
    conversation,
    parent: ids.get(node.parent) ?? null,
    stream: null,
  }));
}
