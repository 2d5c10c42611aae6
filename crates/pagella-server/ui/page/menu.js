// A menu that opens at a button: arrow keys, letters, Escape; closes on any press elsewhere.

import { el, setAttribute } from './element.js';
import { icon } from './icon.js';

let closeOpenMenu = null;

/** `items`: `{label, icon, run, danger, checked, keys}`, or null for a line between groups. */
export function openMenu(anchor, items) {
  closeOpenMenu?.();
  const menu = el('div.menu', { role: 'menu', popover: 'manual' }, items.map((item) => (item ? menuItem(item) : el('hr'))));
  document.body.append(menu);
  menu.showPopover?.();
  placeAt(menu, anchor);
  setAttribute(anchor, 'aria-expanded', 'true');
  const buttons = [...menu.querySelectorAll('button')];
  const close = (refocus) => {
    closeOpenMenu = null;
    menu.remove();
    setAttribute(anchor, 'aria-expanded', 'false');
    document.removeEventListener('pointerdown', outside, true);
    if (refocus) anchor.focus();
  };
  const outside = (event) => { if (!menu.contains(event.target) && !anchor.contains(event.target)) close(false); };
  document.addEventListener('pointerdown', outside, true);
  closeOpenMenu = close;
  menu.addEventListener('click', (event) => { if (event.target.closest('button')) close(true); }, true);
  menu.addEventListener('keydown', (event) => menuKey(event, buttons, close));
  buttons[0]?.focus();
}

function menuItem(item) {
  return el('button.menu-item', { type: 'button', role: item.checked === undefined ? 'menuitem' : 'menuitemcheckbox', tabIndex: -1,
    'aria-checked': item.checked === undefined ? undefined : String(item.checked), class: item.danger ? 'danger' : '', on: { click: () => queueMicrotask(item.run) } },
  item.icon ? icon(item.icon) : el('span.menu-gap', null, item.checked ? '✓' : ''), el('span', null, item.label), item.keys ? el('kbd', null, item.keys) : null);
}

function menuKey(event, buttons, close) {
  const at = buttons.indexOf(document.activeElement);
  const go = (index) => { event.preventDefault(); buttons[(index + buttons.length) % buttons.length]?.focus(); };
  if (event.key === 'ArrowDown') go(at + 1);
  else if (event.key === 'ArrowUp') go(at - 1);
  else if (event.key === 'Home') go(0);
  else if (event.key === 'End') go(-1);
  else if (event.key === 'Escape' || event.key === 'Tab') { event.preventDefault(); event.stopPropagation(); close(true); }
  else if (event.key.length === 1) {
    const next = [...buttons.slice(at + 1), ...buttons.slice(0, at + 1)].find((b) => b.textContent.trim().toLowerCase().startsWith(event.key.toLowerCase()));
    next?.focus();
  }
}

function placeAt(menu, anchor) {
  const box = anchor.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = menu;
  const left = Math.max(8, Math.min(box.left, innerWidth - width - 8));
  const below = box.bottom + 4 + height < innerHeight;
  menu.style.setProperty('left', `${left}px`);
  menu.style.setProperty('top', `${Math.max(8, below ? box.bottom + 4 : box.top - height - 4)}px`);
}
