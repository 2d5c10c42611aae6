// Buttons and labelled fields, made in one way everywhere.

import { el, setAttribute } from './element.js';
import { icon } from './icon.js';

let controlCount = 0;

/** A fresh id, to tie labels, help and errors to their field. */
export const freshId = (word) => `${word}-${++controlCount}`;

/** `{label, icon, keys, variant, onClick}`; with an icon the label is the accessible name and tooltip. */
export function button({ label, icon: iconName, onClick, variant = 'quiet', keys = '', showLabel = false, ...more }) {
  const onlyIcon = iconName && !showLabel;
  const node = el(`button.button.${variant}`, {
    type: 'button',
    class: onlyIcon ? 'icon-only' : '',
    'aria-label': onlyIcon ? label : undefined,
    title: keys ? `${label} (${keys})` : onlyIcon ? label : undefined,
    on: onClick ? { click: onClick } : undefined,
    ...more,
  }, iconName ? icon(iconName) : null, onlyIcon ? null : el('span', null, label));
  return node;
}

/** Changes what a button with an icon says and shows. */
export function relabel(node, label, iconName, keys = '') {
  setAttribute(node, 'aria-label', label);
  setAttribute(node, 'title', keys ? `${label} (${keys})` : label);
  const old = node.querySelector('svg');
  if (iconName && !old.classList.contains(`icon-${iconName}`)) old.replaceWith(icon(iconName));
}

/** A label over a control, with help and room for an error that is announced and tied to the control. */
export function field(label, control, { help, inline = false } = {}) {
  control.id ||= freshId('field');
  const error = el('p.field-error', { id: `${control.id}-error`, hidden: true });
  const note = help ? el('p.field-help', { id: `${control.id}-help` }, help) : null;
  setAttribute(control, 'aria-describedby', [note?.id, error.id].filter(Boolean).join(' '));
  const node = el(inline ? 'div.field.inline' : 'div.field', null, el('label', { for: control.id }, label), control, note, error);
  node.showError = (message) => {
    error.textContent = message ?? '';
    error.hidden = !message;
    setAttribute(control, 'aria-invalid', message ? 'true' : null);
  };
  return node;
}

export function select(options, value, onChange) {
  const node = el('select', { on: { change: () => onChange?.(node.value) } }, options.map(([key, label]) => el('option', { value: key }, label)));
  node.value = value;
  return node;
}

/** `onChange` may refuse by throwing, at once or later: the box goes back, and `onRefused` is told why. */
export function checkbox(label, checked, onChange, { help, onRefused } = {}) {
  const change = async () => {
    const wanted = input.checked;
    try {
      await onChange?.(wanted);
    } catch (error) {
      input.checked = !wanted;
      onRefused?.(error);
    }
  };
  const input = el('input', { type: 'checkbox', checked, on: { change } });
  const node = el('label.check', null, input, el('span', null, label, help ? el('small', null, help) : null));
  node.input = input;
  return node;
}

export const textInput = (value, props) => el('input', { type: 'text', value: value ?? '', autocomplete: 'off', spellcheck: 'false', ...props });
