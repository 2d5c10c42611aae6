// What screen readers hear. Two quiet live regions: one for states, one for the text of an answer, which
// is spoken in whole sentences and at most every three seconds.

import { el } from './element.js';

const ANNOUNCE_EVERY_MS = 3000;

const stateRegion = el('div.offscreen', { 'aria-live': 'polite', 'aria-atomic': 'true', id: 'announce-state' });
const textRegion = el('div.offscreen', { 'aria-live': 'polite', id: 'announce-text' });

/** What has to stand on the page for anything to be heard. */
export const announceRegions = [stateRegion, textRegion];

/** Says a state once; the same words twice in a row are said once. */
export function announce(message) {
  if (stateRegion.textContent !== message) stateRegion.textContent = message;
}

/** Follows one growing answer. `feed` takes the whole plain text so far. */
export class AnswerAnnouncer {
  #spoken = 0;
  #last_ms = 0;

  feed(text, done = false, now_ms = performance.now()) {
    if (!done && now_ms - this.#last_ms < ANNOUNCE_EVERY_MS) return;
    const rest = text.slice(this.#spoken);
    const end = done ? rest.length : sentenceEnd(rest);
    if (end === 0) return;
    this.#spoken += end;
    this.#last_ms = now_ms;
    textRegion.replaceChildren(el('p', null, rest.slice(0, end).trim()));
  }
}

/** Length of the whole sentences at the start of `text`. */
export function sentenceEnd(text) {
  let end = 0;
  for (const match of text.matchAll(/[.!?…。！？]["')\]]*\s|\n\n/g)) end = match.index + match[0].length;
  return end;
}
