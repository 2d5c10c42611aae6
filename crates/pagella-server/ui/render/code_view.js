// A block of code: label, copy, wrap, line numbers, a height cap. Grows line by line while it streams:
// lines that are complete are never touched again.

import { el } from '../page/element.js';
import { button, relabel } from '../page/controls.js';
import { copyText } from '../page/clipboard.js';
import { say } from '../page/words.js';
import { highlightLine } from './highlight.js';

const NUMBERED_LINES = 20;
const CAPPED_LINES = 32;

export class CodeView {
  #lines = [];
  #rows = [];
  #states = [null];
  #language;
  #text = '';

  constructor(language) {
    this.#language = language;
    this.code = el('code');
    this.pre = el('pre', { tabIndex: 0, role: 'group', 'aria-label': say('code.region', { language: language || say('code.plain') }) }, this.code);
    this.copyButton = button({ label: say('copy'), icon: 'copy', onClick: () => this.#copy() });
    this.expandButton = button({ label: say('code.expand'), icon: 'expand', hidden: true, onClick: () => this.node.classList.toggle('expanded') });
    this.node = el('figure.code', null, el('figcaption', null, el('span.code-language', null, language || say('code.plain')), this.expandButton,
      button({ label: say('code.wrap'), icon: 'wrap', onClick: () => this.node.classList.toggle('wrapped') }), this.copyButton), this.pre);
  }

  async #copy() {
    await copyText(this.#text);
    relabel(this.copyButton, say('copied'), 'check');
    setTimeout(() => relabel(this.copyButton, say('copy'), 'copy'), 1500);
  }

  /** Takes the whole text; only lines from the first that differs are drawn. */
  update(text) {
    if (text === this.#text && this.#rows.length) return;
    const atEnd = this.pre.scrollHeight - this.pre.scrollTop - this.pre.clientHeight < 40;
    this.#text = text;
    const lines = text.split('\n');
    let first = 0;
    while (first < lines.length && first < this.#lines.length && lines[first] === this.#lines[first]) first++;
    for (let i = first; i < lines.length; i++) this.#drawLine(i, lines[i]);
    for (const row of this.#rows.splice(lines.length)) row.remove();
    this.#lines = lines;
    this.node.classList.toggle('numbered', lines.length > NUMBERED_LINES);
    this.node.classList.toggle('capped', lines.length > CAPPED_LINES);
    this.expandButton.hidden = lines.length <= CAPPED_LINES;
    if (atEnd) this.pre.scrollTop = this.pre.scrollHeight;
  }

  #drawLine(index, line) {
    const { tokens, state } = highlightLine(this.#language, line, structuredClone(this.#states[index] ?? null));
    this.#states[index + 1] = state;
    const row = this.#rows[index] ?? el('span.code-line');
    // The line break belongs to the text, so that selecting and copying by hand gives whole lines.
    row.replaceChildren(...tokens.map(([kind, part]) => (kind ? el(`span.hl-${kind}`, null, part) : part)), '\n');
    if (!this.#rows[index]) {
      this.#rows[index] = row;
      this.code.append(row);
    }
  }
}
