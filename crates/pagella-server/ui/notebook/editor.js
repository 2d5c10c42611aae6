// The notebook's text field: a plain textarea with a copy of its text behind it, which carries the tint of
// generated parts. Owns text, spans and undo; knows nothing of servers.

import { el, fill } from '../page/element.js';
import { oncePerFrame } from '../page/cell.js';
import { say } from '../page/words.js';
import { TextHistory, difference, shiftSpans } from './text_history.js';

export class Editor {
  spans = [];
  #history = new TextHistory();
  #before = '';
  #paint = oncePerFrame(() => this.#drawBack());

  constructor(onChange) {
    this.onChange = onChange;
    this.back = el('div.editor-back', { 'aria-hidden': 'true' });
    this.area = el('textarea.editor-text', { spellcheck: 'false', autocomplete: 'off', dir: 'auto', 'aria-label': say('notebook.text'), placeholder: say('notebook.placeholder'), on: {
      beforeinput: (event) => {
        if (event.inputType === 'historyUndo' || event.inputType === 'historyRedo') {
          event.preventDefault();
          if (event.inputType === 'historyUndo') this.undo(); else this.redo();
        }
      },
      input: () => this.#typed(),
      scroll: () => this.#sync(),
      keydown: (event) => {
        if (!(event.ctrlKey || event.metaKey) || event.altKey || event.key.toLowerCase() !== 'z') return;
        event.preventDefault();
        if (event.shiftKey) this.redo(); else this.undo();
      },
    } });
    this.node = el('div.editor', null, this.back, this.area);
  }

  get text() {
    return this.area.value;
  }

  open(text) {
    this.area.value = text;
    this.#before = text;
    this.spans = [];
    this.#history = new TextHistory();
    this.#paint();
  }

  #now() {
    return { text: this.area.value, start: this.area.selectionStart, end: this.area.selectionEnd, spans: this.spans };
  }

  #typed() {
    this.#history.typed({ text: this.#before, start: this.area.selectionStart, end: this.area.selectionStart, spans: this.spans });
    const { start, end, length } = difference(this.#before, this.area.value);
    this.spans = shiftSpans(this.spans, start, end, length);
    this.#changed();
  }

  #changed() {
    this.#before = this.area.value;
    this.#paint();
    this.onChange(this.area.value);
  }

  /** Remembers this moment as one undo step. */
  mark() {
    this.#history.step(this.#now());
  }

  /** Puts generated text over `[start, end)`; the caret follows it only if it stood there. */
  insert(start, end, text) {
    const { area } = this;
    const atEnd = area.scrollHeight - area.scrollTop - area.clientHeight < 40;
    const caret = area.selectionStart;
    area.setRangeText(text, start, end, 'preserve');
    this.spans = [...shiftSpans(this.spans, start, end, text.length), [start, start + text.length]];
    if (caret >= start && caret <= end) area.setSelectionRange(start + text.length, start + text.length);
    if (atEnd) area.scrollTop = area.scrollHeight;
    this.#changed();
  }

  undo() {
    if (!this.area.readOnly) this.#restore(this.#history.undo(this.#now()));
  }

  redo() {
    if (!this.area.readOnly) this.#restore(this.#history.redo(this.#now()));
  }

  #restore(state) {
    if (!state) return;
    this.area.value = state.text;
    this.spans = state.spans;
    this.area.setSelectionRange(state.start, state.end);
    this.#changed();
  }

  #drawBack() {
    const text = this.area.value;
    const parts = [];
    let at = 0;
    for (const [from, to] of [...this.spans].sort((a, b) => a[0] - b[0])) {
      if (to <= at) continue;
      parts.push(text.slice(at, Math.max(at, from)), el('mark', null, text.slice(Math.max(at, from), to)));
      at = to;
    }
    // The last line break needs something behind it to take height.
    fill(this.back, parts, text.slice(at), '\u200b');
    this.#sync();
  }

  #sync() {
    this.back.scrollTop = this.area.scrollTop;
    this.back.scrollLeft = this.area.scrollLeft;
  }
}
