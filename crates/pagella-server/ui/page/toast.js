// Short messages at the top of the page, with at most one action, such as undo. They leave by
// themselves, but not while the pointer or the focus is on them. While a dialog is open they are its last
// part: nothing outside of it can be reached, and nothing in it is covered.

import { el } from './element.js';
import { button } from './controls.js';
import { say } from './words.js';
import { announce, announceRegions } from './announce.js';

const TOAST_MS = 5000;
/** How long a deletion can be undone. */
export const UNDO_MS = 10000;

const toastStack = el('div.toasts', { role: 'region', 'aria-label': say('toast.region') });

const toastHost = el('div.toast-host', null, toastStack, announceRegions);

/** Puts messages, seen and heard ones, where they can be reached: into the dialog on top, else on the page. */
export function placeToasts() {
  const dialogs = document.querySelectorAll('dialog[open]');
  (dialogs[dialogs.length - 1] ?? document.body).append(toastHost);
}

/** `{tone: 'plain'|'error', action: [label, run], ms, onGone}`. Returns the function that removes it. */
export function toast(message, { tone = 'plain', action, ms = action ? UNDO_MS : TOAST_MS, onGone } = {}) {
  let timer = 0;
  const gone = () => {
    clearTimeout(timer);
    if (!node.isConnected) return;
    node.remove();
    onGone?.();
  };
  const wait = () => { timer = setTimeout(gone, ms); };
  const node = el('div.toast', { class: tone, on: {
    mouseenter: () => clearTimeout(timer), mouseleave: wait, focusin: () => clearTimeout(timer), focusout: wait,
  } }, el('span', null, message),
  action ? button({ label: action[0], variant: 'link', onClick: () => { onGone = undefined; gone(); action[1](); } }) : null,
  button({ label: say('close'), icon: 'close', onClick: gone }));
  toastStack.append(node);
  while (toastStack.children.length > 4) toastStack.firstChild.remove();
  announce(message);
  wait();
  return gone;
}

export function showError(error) {
  const words = error?.message ?? String(error);
  return toast(`${words.slice(0, 1).toUpperCase()}${words.slice(1)}`, { tone: 'error', ms: 8000 });
}
