// Modal dialogs on the browser's own <dialog>, which traps the focus and gives it back.

import { el } from './element.js';
import { button, field, freshId, textInput } from './controls.js';
import { placeToasts } from './toast.js';
import { say } from './words.js';

/** Opens a dialog; `build(close)` returns its content. Resolves with what `close` was given. */
export function openDialog(title, build, { wide = false, className = '' } = {}) {
  return new Promise((resolve) => {
    const id = freshId('dialog');
    let result;
    const before = document.activeElement;
    const close = (value) => { result = value; node.close(); };
    const node = el('dialog.dialog', { 'aria-labelledby': id, class: `${wide ? 'wide' : ''} ${className}`, on: {
      close: () => { placeToasts(); node.remove(); before?.focus?.(); resolve(result); },
      // A press on the backdrop closes; presses that start inside do not.
      pointerdown: (event) => { if (event.target === node) close(); },
    } }, el('header.dialog-head', null, el('h2', { id }, title), button({ label: say('close'), icon: 'close', onClick: () => close() })));
    node.append(el('div.dialog-body', null, build(close)));
    document.body.append(node);
    node.showModal();
    placeToasts();
    (node.querySelector('[autofocus]') ?? node.querySelector('.dialog-body :is(input, textarea, select, button)'))?.focus();
  });
}

export function confirmDialog(title, text, action, { danger = false } = {}) {
  return openDialog(title, (close) => [
    el('p', null, text),
    el('div.dialog-actions', null, button({ label: say('cancel'), variant: 'plain', showLabel: true, onClick: () => close(false) }),
      button({ label: action, variant: danger ? 'danger' : 'primary', showLabel: true, autofocus: true, onClick: () => close(true) })),
  ]);
}

/** Asks for one line of text; resolves to it, or undefined. */
export function promptDialog(title, label, value = '') {
  return openDialog(title, (close) => {
    const input = textInput(value, { autofocus: true, maxlength: 200 });
    const accept = () => close(input.value.trim() || undefined);
    input.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.isComposing) { event.preventDefault(); accept(); }
    });
    queueMicrotask(() => input.select());
    return [field(label, input), el('div.dialog-actions', null,
      button({ label: say('cancel'), variant: 'plain', onClick: () => close() }), button({ label: say('save'), variant: 'primary', onClick: accept }))];
  });
}
