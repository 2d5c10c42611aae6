// Copying text. The modern call needs a secure origin; the old one works on plain http too.

import { el } from './element.js';

export async function copyText(text) {
  try {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return true;
    }
  } catch {
    // Permission refused: the old way may still work.
  }
  const area = el('textarea.offscreen', { value: text, readOnly: true, 'aria-hidden': 'true' });
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  focused?.focus?.();
  return copied;
}

/** Offers text to the person as a file. */
export function saveFile(name, text, type = 'application/json') {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** Lets the person choose files; resolves to the list, empty when they think better of it. */
export function chooseFiles(accept, multiple = false) {
  return new Promise((resolve) => {
    const input = el('input.offscreen', { type: 'file', accept, multiple, on: {
      change: () => { resolve([...input.files]); input.remove(); },
      cancel: () => { resolve([]); input.remove(); },
    } });
    document.body.append(input);
    input.click();
  });
}
