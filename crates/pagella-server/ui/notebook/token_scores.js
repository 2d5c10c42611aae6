// Where the tokens of a text stand, with what is known of their probabilities. A token's probability holds
// only while everything before it and itself are as they were: an edit voids it and all that follow. Pure.

/** UTF-16 offsets of every code point of `text`, and of its end. */
function codePointStarts(text) {
  const starts = [];
  let at = 0;
  for (const char of text) {
    starts.push(at);
    at += char.length;
  }
  starts.push(at);
  return starts;
}

/**
 * Tokens of `text`, a part of a notebook's text that begins at `start`, in their places. `offset` of an entry is
 * where its token begins, in code points: special tokens, which are no text, and the rest of a character that
 * two tokens share take no room. Entries beyond the text are left out.
 */
export function placeTokens(entries, text, start = 0) {
  const starts = codePointStarts(text);
  const placed = [];
  for (const [i, entry] of entries.entries()) {
    const from = starts[entry.offset];
    const to = starts[entries[i + 1]?.offset] ?? text.length;
    if (from === undefined || from >= text.length) break;
    placed.push({ ...entry, at: start + from, end: start + to });
  }
  return placed;
}

/** Tokens as the tokenizer cuts `text`, which begins at `start`. Pieces are texts, or bytes where they are none alone. */
export function placePieces(ids, pieces, text, start = 0) {
  const decoder = new TextDecoder();
  const encoder = new TextEncoder();
  let at = 0;
  return ids.map((id, i) => {
    const piece = pieces?.[i] ?? '';
    const isText = typeof piece === 'string';
    const whole = decoder.decode(isText ? encoder.encode(piece) : Uint8Array.from(piece), { stream: true });
    const length = text.startsWith(whole, at) ? whole.length : 0;
    const token = { id, text: isText ? piece : '\ufffd', logprob: null, top: [], at: start + at, end: start + at + length };
    at += length;
    return token;
  });
}

function commonLength(a, b) {
  const most = Math.min(a.length, b.length);
  let n = 0;
  while (n < most && a[n] === b[n]) n++;
  return n;
}

export class TokenScores {
  #text = '';
  #tokens = [];

  /** Tokens whose probability still holds for `text`, in order. */
  of(text) {
    if (text !== this.#text) {
      const same = commonLength(this.#text, text);
      this.#tokens = this.#tokens.filter((token) => token.end <= same);
      this.#text = text;
    }
    return this.#tokens;
  }

  /** Remembers tokens from the first one's place on; what was known behind it is void. */
  add(text, tokens) {
    if (tokens.length === 0) return;
    this.#tokens = [...this.of(text).filter((token) => token.end <= tokens[0].at), ...tokens];
  }

  /** All that is known is replaced. */
  set(text, tokens) {
    this.#text = text;
    this.#tokens = tokens;
  }
}
