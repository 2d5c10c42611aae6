// Follow mode: the transcript keeps its newest line in view only while the reader is there. Any scroll,
// key, selection or focus of theirs ends it; reaching the end or the button brings it back.
// "End" is the end of the text, not of the empty room kept below a fresh question.

import { Cell } from '../page/cell.js';

/** How near the end counts as being there. */
export const FOLLOW_PX = 40;

export class Follow {
  /** Whether new text is followed. */
  active = new Cell(true);
  /** Where we put the view ourselves: a scroll event at another place is the reader's. */
  #ours_px = -1;

  /** `end()` gives the element whose bottom is the end of the text. */
  constructor(scroller, end) {
    this.scroller = scroller;
    this.end = end;
    scroller.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    scroller.addEventListener('wheel', (event) => { if (event.deltaY < 0) this.pause(); }, { passive: true });
    scroller.addEventListener('touchmove', () => this.pause(), { passive: true });
    scroller.addEventListener('keydown', (event) => { if (!event.ctrlKey && !event.metaKey && !event.altKey) this.pause(); });
    scroller.addEventListener('focusin', () => this.pause());
    document.addEventListener('selectionchange', () => {
      const selection = getSelection();
      if (selection && !selection.isCollapsed && scroller.contains(selection.anchorNode)) this.pause();
    });
  }

  /** Pixels of text below the view; negative when there is empty room. */
  below_px() {
    const end = this.end();
    if (!end) return 0;
    return end.getBoundingClientRect().bottom - this.scroller.getBoundingClientRect().bottom;
  }

  #scrolled() {
    const top = this.scroller.scrollTop;
    if (Math.abs(top - this.#ours_px) <= 1) return;
    this.active.value = this.below_px() <= FOLLOW_PX;
  }

  pause() {
    this.active.value = false;
  }

  /** Called after text grew. */
  grew() {
    if (!this.active.value) return;
    const below = this.below_px();
    if (below > 0) this.moveTo(this.scroller.scrollTop + below + 12);
  }

  moveTo(top_px) {
    this.scroller.scrollTop = top_px;
    this.#ours_px = this.scroller.scrollTop;
  }

  /** The button: to the end, and follow again. */
  jump() {
    this.active.value = true;
    this.moveTo(this.scroller.scrollTop + this.below_px() + 12);
  }
}
