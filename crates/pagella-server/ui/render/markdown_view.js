// Markdown trees → DOM. The list of elements this file makes is the whole allow-list; everything a model
// writes ends in text nodes. Closed blocks keep their nodes while the text grows.

import { el, mathEl } from '../page/element.js';
import { say } from '../page/words.js';
import { GrowingBlocks } from './block.js';
import { CodeView } from './code_view.js';
import { parseInline } from './inline.js';
import { parseLatex } from './latex.js';

const SAFE_LINK = /^(https?:\/\/|mailto:)/i;

export class MarkdownView {
  #reader = new GrowingBlocks();
  /** One `{key, nodes, code}` per block. */
  #drawn = [];

  constructor() {
    this.node = el('div.markdown', { dir: 'auto' });
  }

  update(text) {
    const changed = this.#reader.set(text);
    const { blocks } = this.#reader;
    for (let i = changed; i < blocks.length; i++) this.#draw(i, blocks[i]);
    for (const { node } of this.#drawn.splice(blocks.length)) node.remove();
  }

  #draw(index, block) {
    const old = this.#drawn[index];
    const key = JSON.stringify(block, (name, value) => (name === 'from' ? undefined : value));
    if (old?.key === key) return;
    if (block.t === 'code' && old?.code && old.language === block.lang) {
      old.code.update(block.text);
      old.key = key;
      return;
    }
    const code = block.t === 'code' ? new CodeView(block.lang) : null;
    code?.update(block.text);
    const node = code ? code.node : blockNode(block);
    if (old) old.node.replaceWith(node);
    else this.node.append(node);
    this.#drawn[index] = { key, node, code, language: block.lang };
  }
}

/** A whole text at once. */
export function markdownNode(text) {
  const view = new MarkdownView();
  view.update(text);
  return view.node;
}

function blockNode(block) {
  switch (block.t) {
    case 'p': return el('p', { dir: 'auto' }, inlineNodes(block.s));
    // Headings inside a message start below the message's own heading.
    case 'heading': return el(`h${Math.min(6, block.level + 2)}`, { dir: 'auto', class: `md-h${block.level}` }, inlineNodes(block.s));
    case 'rule': return el('hr');
    case 'quote': return el('blockquote', { dir: 'auto' }, block.c.map(blockNode));
    case 'code': { const view = new CodeView(block.lang); view.update(block.text); return view.node; }
    case 'math': return mathBlock(block);
    case 'list': return listNode(block);
    case 'table': return tableNode(block);
    case 'footnote': return el('div.footnote', null, el('sup', null, block.label), el('div', null, block.c.map(blockNode)));
    default: return el('p', null, String(block.s ?? ''));
  }
}

function listNode(list) {
  const items = list.items.map(({ task, c }) => {
    const content = c.map((block) => (list.tight && block.t === 'p' ? el('span', { dir: 'auto' }, inlineNodes(block.s)) : blockNode(block)));
    const box = task === null ? null : el('span.task', { role: 'img', 'aria-label': say(task ? 'task.done' : 'task.open') }, task ? '☑' : '☐');
    return el('li', { class: task === null ? '' : 'task-item' }, box, content);
  });
  return el(list.ordered ? 'ol' : 'ul', { start: list.ordered && list.start !== 1 ? list.start : undefined, class: list.tight ? 'tight' : '' }, items);
}

function tableNode(table) {
  const cell = (tag, text, i) => el(tag, { class: table.align[i] ? `align-${table.align[i]}` : '', scope: tag === 'th' ? 'col' : undefined, dir: 'auto' }, inlineNodes(text));
  return el('div.table-scroll', { tabIndex: 0, role: 'group', 'aria-label': say('table.region') }, el('table', null,
    el('thead', null, el('tr', null, table.head.map((text, i) => cell('th', text, i)))),
    el('tbody', null, table.rows.map((row) => el('tr', null, row.map((text, i) => cell('td', text, i)))))));
}

function mathBlock(block) {
  const after = block.after ? el('p', { dir: 'auto' }, inlineNodes(block.after)) : null;
  if (!block.closed) return el('p', null, block.v);
  return el('div.math-block', { tabIndex: 0 }, mathNode(block.v, true), after);
}

/** MathML, or the source when the formula is beyond the subset. */
function mathNode(source, display) {
  const tree = parseLatex(source, display);
  return tree ? mathFromTree(tree) : el('code.math-source', { title: say('math.unsupported') }, source);
}

function mathFromTree([tag, attributes, children]) {
  const { limits, ...rest } = attributes;
  return mathEl(tag, rest, children.map((child) => (typeof child === 'string' ? child : mathFromTree(child))));
}

const inlineNodes = (source) => parseInline(source).map(inlineNode);

function inlineNode(node) {
  switch (node.t) {
    case 'text': return node.v;
    case 'code': return el('code', null, node.v);
    case 'break': return el('br');
    case 'math': return mathNode(node.v, node.display);
    case 'em': case 'strong': case 'del': return el(node.t, null, node.c.map(inlineNode));
    case 'footref': return el('sup.footref', null, node.v);
    case 'link': return linkNode(node);
    // Never fetched: a picture address is a way to send text elsewhere.
    case 'image': return el('span.image-text', null, say('image.text', { alt: node.alt || node.src.slice(0, 80) }));
    default: return '';
  }
}

function linkNode(node) {
  const content = node.c.map(inlineNode);
  if (!SAFE_LINK.test(node.href)) return el('span.dead-link', { title: node.href }, content);
  // The full target is the tooltip, and the app asks before opening one whose text hides it.
  return el('a', { href: node.href, target: '_blank', rel: 'noopener noreferrer nofollow', title: node.href, data: { outside: '' } }, content);
}
