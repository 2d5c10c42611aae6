// The whole tree of a conversation as an indented outline; choosing a message shows its branch.

import { el } from '../page/element.js';
import { openDialog } from '../page/dialog.js';
import { formatWhen } from '../page/format.js';
import { say } from '../page/words.js';
import { activePath, childrenOf } from '../data/tree.js';

export async function openOutline(tree, onChoose) {
  const shown = new Set(activePath(tree).map((node) => node.id));
  const chosen = await openDialog(say('outline.title'), (close) => {
    // Runs without branches stay on one level, so that long conversations do not walk off the page.
    const rows = [];
    const stack = childrenOf(tree, null).reverse().map((node) => ({ node, level: 0 }));
    while (stack.length) {
      const { node, level } = stack.pop();
      rows.push(outlineRow(node, level, shown.has(node.id), close));
      const children = childrenOf(tree, node.id);
      const next = children.length > 1 ? level + 1 : level;
      for (const child of children.reverse()) stack.push({ node: child, level: next });
    }
    return el('ul.outline', null, rows.length ? rows : el('li', null, say('outline.empty')));
  }, { wide: true });
  if (chosen) onChoose(chosen);
}

function outlineRow(node, level, shown, close) {
  return el('li', { vars: { '--level': String(Math.min(level, 12)) } },
    el('button.outline-row', { type: 'button', class: shown ? 'shown' : '', 'aria-current': shown ? 'true' : undefined, on: { click: () => close(node.id) } },
      el('span.outline-role', null, say(node.role === 'user' ? 'role.user' : 'role.assistant')), el('span.outline-text', null, node.content.slice(0, 120).replace(/\s+/g, ' ') || '…'), el('small', null, formatWhen(node.time))));
}
