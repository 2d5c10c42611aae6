// Undo for the notebook: the browser's own undo forgets text that a program inserted, so we keep our own.
// A whole generation is one step, and so is a run of typing. Pure.

const STEPS_MAX = 300;
/** Typing with shorter pauses than this is one step. */
const TYPING_MS = 800;

/** A moment: `{text, start, end, spans}`; `spans` are the generated parts `[from, to]`. */
export class TextHistory {
  #past = [];
  #future = [];
  #typedAt_ms = 0;

  /** Remembers `before`, the state that is about to change. */
  step(before) {
    this.#push(before);
    this.#typedAt_ms = 0;
  }

  /** As `step`, but joins quick typing. */
  typed(before, now_ms = Date.now()) {
    if (now_ms - this.#typedAt_ms > TYPING_MS) this.#push(before);
    this.#typedAt_ms = now_ms;
    this.#future = [];
  }

  #push(state) {
    if (this.#past.at(-1)?.text === state.text) return;
    this.#past.push(state);
    if (this.#past.length > STEPS_MAX) this.#past.shift();
    this.#future = [];
  }

  /** Returns the state to go back to, or null. */
  undo(now) {
    this.#typedAt_ms = 0;
    let state = this.#past.pop();
    if (state?.text === now.text) state = this.#past.pop();
    if (!state) return null;
    this.#future.push(now);
    return state;
  }

  redo(now) {
    const state = this.#future.pop();
    if (!state) return null;
    this.#past.push(now);
    return state;
  }
}

/** Generated spans after `[start, end)` was replaced by `length` characters: a touched span loses its tint. */
export function shiftSpans(spans, start, end, length) {
  const by = length - (end - start);
  const out = [];
  for (const [from, to] of spans) {
    if (to <= start) out.push([from, to]);
    else if (from >= end) out.push([from + by, to + by]);
    else {
      if (from < start) out.push([from, start]);
      if (to > end) out.push([end + by, to + by]);
    }
  }
  return out;
}

/** Where two texts differ: `{start, end, length}` replaced in the first to get the second. */
export function difference(before, after) {
  let start = 0;
  const most = Math.min(before.length, after.length);
  while (start < most && before[start] === after[start]) start++;
  let tail = 0;
  while (tail < most - start && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail++;
  return { start, end: before.length - tail, length: after.length - tail - start };
}
