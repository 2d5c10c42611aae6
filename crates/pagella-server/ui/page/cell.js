// A value that tells others when it changes: the page's whole reactivity.
// A listener is called at once with the present value and then after each change; listeners of one
// cell run in the order they came. A change made inside a listener is delivered after the running round.

export class Cell {
  #value;
  #listeners = new Set();
  #delivering = false;
  #again = false;

  constructor(value) {
    this.#value = value;
  }

  get value() {
    return this.#value;
  }

  set value(next) {
    if (Object.is(next, this.#value)) return;
    this.#value = next;
    this.notify();
  }

  /** Shallow merge, for cells that hold an object. */
  patch(fields) {
    this.value = { ...this.#value, ...fields };
  }

  /** For values changed in place. */
  notify() {
    if (this.#delivering) {
      this.#again = true;
      return;
    }
    this.#delivering = true;
    try {
      do {
        this.#again = false;
        for (const listener of [...this.#listeners]) listener(this.#value);
      } while (this.#again);
    } finally {
      this.#delivering = false;
    }
  }

  /** Returns the function that ends the subscription. */
  watch(listener, { now = true } = {}) {
    this.#listeners.add(listener);
    if (now) listener(this.#value);
    return () => this.#listeners.delete(listener);
  }
}

/** Calls `work` at most once per frame, however often it is asked. */
export function oncePerFrame(work) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      work();
    });
  };
}

/** Calls `work` when it has not been asked for `quiet_ms`. */
export function afterQuiet(quiet_ms, work) {
  let timer = 0;
  const ask = (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...args), quiet_ms);
  };
  ask.cancel = () => clearTimeout(timer);
  return ask;
}
