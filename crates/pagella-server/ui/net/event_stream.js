// Server-sent events, read from bytes. Lines are found in bytes and decoded whole, so a chunk may end
// anywhere, also inside a character. `consumed` counts the bytes of complete events: a stream resumed
// there neither loses nor repeats one.

const LF = 10;
const CR = 13;

export class EventStreamReader {
  /** Bytes up to the end of the last complete event, from the first byte of the stream. */
  consumed = 0;
  #received = 0;
  #pending = new Uint8Array(0);
  #data = [];
  #event = '';
  #decoder = new TextDecoder();
  #afterCr = false;

  /** `from`: the byte of the stream at which this reader starts. */
  constructor(from = 0) {
    this.consumed = from;
    this.#received = from;
  }

  /** Takes bytes, returns the events that are now complete: `{event, data}` or `{comment}`. */
  push(bytes) {
    const events = [];
    let start = 0;
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at];
      if (byte !== LF && byte !== CR) {
        this.#afterCr = false;
        continue;
      }
      if (byte === LF && this.#afterCr) {
        // The second half of CR LF: the line is already done.
        this.#afterCr = false;
        start = at + 1;
        if (this.#data.length === 0 && !this.#event) this.consumed = this.#received + start;
        continue;
      }
      this.#afterCr = byte === CR;
      const line = this.#takeLine(bytes.subarray(start, at));
      start = at + 1;
      this.#readLine(line, events, this.#received + start);
    }
    this.#keep(bytes.subarray(start));
    this.#received += bytes.length;
    return events;
  }

  #takeLine(tail) {
    if (this.#pending.length === 0) return this.#decoder.decode(tail);
    this.#keep(tail);
    const line = this.#decoder.decode(this.#pending);
    this.#pending = new Uint8Array(0);
    return line;
  }

  #keep(tail) {
    if (tail.length === 0) return;
    const joined = new Uint8Array(this.#pending.length + tail.length);
    joined.set(this.#pending);
    joined.set(tail, this.#pending.length);
    this.#pending = joined;
  }

  #readLine(line, events, end) {
    if (line === '') {
      if (this.#data.length) events.push({ event: this.#event, data: this.#data.join('\n') });
      this.#data = [];
      this.#event = '';
      this.consumed = end;
      return;
    }
    if (line.startsWith(':')) {
      events.push({ comment: line.slice(1).trim() });
      return;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const rest = colon < 0 ? '' : line.slice(colon + 1);
    const value = rest.startsWith(' ') ? rest.slice(1) : rest;
    if (field === 'data') this.#data.push(value);
    else if (field === 'event') this.#event = value;
  }
}
