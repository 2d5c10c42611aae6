// Colours code line by line. `highlightLine` takes a line and the state the line before left behind, and
// returns tokens and the new state: while code streams in, only its last line is scanned again.
// Tokens are `[kind, text]`; their texts joined are the line, always. Kinds: '' word type value string
// number comment call meta key tag added removed.

import { CODE_LANGUAGES, knownLanguage } from './languages.js';

/** Longer lines are shown plain: nobody reads colours in minified code. */
const LINE_CHARS_MAX = 2000;

const WORD = /^[\p{L}_$][\p{L}\p{N}_$]*/u;
const NUMBER = /^(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)[a-zA-Z\d]*/;

/** State `null` is the start of the text. Returns `{tokens, state}`. */
export function highlightLine(language, line, state) {
  if (line.length > LINE_CHARS_MAX) return { tokens: [['', line]], state };
  const name = knownLanguage(language);
  if (name === null) return { tokens: [['', line]], state: null };
  if (name === 'diff') return { tokens: [[diffKind(line), line]], state: null };
  if (name === 'markdown') return markdownLine(line, state);
  if (name === 'markup') return markupLine(line, state);
  return new CodeScanner(CODE_LANGUAGES[name], line, state).scan();
}

function diffKind(line) {
  if (/^(\+\+\+|---|diff |index )/.test(line)) return 'meta';
  return line.startsWith('+') ? 'added' : line.startsWith('-') ? 'removed' : line.startsWith('@@') ? 'key' : '';
}

function markdownLine(line, state) {
  if (/^\s*(```|~~~)/.test(line)) return { tokens: [['meta', line]], state: state ? null : 'fence' };
  if (state) return { tokens: [['string', line]], state };
  if (/^#{1,6}\s/.test(line)) return { tokens: [['key', line]], state };
  if (/^\s*>/.test(line)) return { tokens: [['comment', line]], state };
  const tokens = line.split(/(`[^`]*`|\*\*[^*]+\*\*|\[[^\]]*\]\([^)]*\))/).filter(Boolean);
  return { tokens: tokens.map((t) => [t[0] === '`' ? 'string' : t.startsWith('**') ? 'word' : /^\[.*\)$/.test(t) ? 'call' : '', t]), state };
}

/** States: null, 'comment', 'tag', or a quote sign inside a tag. */
function markupLine(line, state) {
  const tokens = [];
  let at = 0;
  const take = (kind, length) => {
    const last = tokens.at(-1);
    if (last?.[0] === kind) last[1] += line.slice(at, at + length);
    else if (length > 0) tokens.push([kind, line.slice(at, at + length)]);
    at += length;
  };
  const upTo = (text, width) => {
    const end = line.indexOf(text, at);
    return end < 0 ? -1 : end + width - at;
  };
  while (at < line.length) {
    if (state === 'comment') {
      const length = upTo('-->', 3);
      take('comment', length < 0 ? line.length - at : length);
      if (length >= 0) state = null;
    } else if (state === '"' || state === "'") {
      const length = upTo(state, 1);
      take('string', length < 0 ? line.length - at : length);
      if (length >= 0) state = 'tag';
    } else if (state === 'tag') {
      const rest = line.slice(at);
      const name = /^[\w:@.-]+/.exec(rest);
      if (name) take('key', name[0].length);
      else if (rest[0] === '"' || rest[0] === "'") {
        state = rest[0];
        take('string', 1);
      } else if (rest[0] === '>') {
        state = null;
        take('tag', 1);
      } else take(rest[0] === '/' ? 'tag' : '', 1);
    } else if (line.startsWith('<!--', at)) {
      state = 'comment';
      take('comment', 4);
    } else {
      const open = /^<[/!?]?[A-Za-z][\w:.-]*/.exec(line.slice(at));
      if (open) {
        state = 'tag';
        take('tag', open[0].length);
      } else {
        const next = line.indexOf('<', at + 1);
        take('', (next < 0 ? line.length : next) - at);
      }
    }
  }
  return { tokens, state };
}

/** State of the `code` kind: null, or `{end, kind, raw, depth, escape}` inside a comment or long string. */
class CodeScanner {
  constructor(spec, line, state) {
    this.spec = spec;
    this.line = line;
    this.state = state;
    this.at = 0;
    this.tokens = [];
  }

  scan() {
    if (!this.state) this.lineStart();
    while (this.at < this.line.length) {
      if (this.state) this.insideLong();
      else this.step();
    }
    if (this.state && !this.state.lines) this.state = null;
    return { tokens: this.tokens, state: this.state };
  }

  take(kind, length) {
    const text = this.line.slice(this.at, this.at + length);
    const last = this.tokens.at(-1);
    if (last && last[0] === kind) last[1] += text;
    else this.tokens.push([kind, text]);
    this.at += length;
  }

  lineStart() {
    const { spec, line } = this;
    if (spec.section?.test(line)) return this.take('meta', line.length);
    const key = spec.lineKey?.exec(line);
    if (!key) return undefined;
    this.take('', key[1].length);
    this.take('key', key[2].length);
    return this.take('', key[3].length);
  }

  insideLong() {
    const { line, state } = this;
    for (let i = this.at; i < line.length; i++) {
      if (!state.raw && line[i] === (state.escape ?? '\\')) {
        i++;
      } else if (line.startsWith(state.end, i)) {
        state.depth--;
        i += state.end.length - 1;
        if (state.depth === 0) {
          this.take(state.kind, i + 1 - this.at);
          this.state = null;
          return;
        }
      } else if (state.nest && line.startsWith(state.nest, i)) {
        state.depth++;
        i += state.nest.length - 1;
      }
    }
    this.take(state.kind, line.length - this.at);
  }

  step() {
    const { spec, line, at } = this;
    const rest = line.slice(at);
    const before = at === 0 ? ' ' : line[at - 1];
    if (spec.block && rest.startsWith(spec.block[0])) return this.enter({ end: spec.block[1], kind: 'comment', raw: true, lines: true, depth: 1, nest: spec.nested ? spec.block[0] : null }, spec.block[0].length);
    const comment = (spec.line && rest.startsWith(spec.line)) || (spec.hash && rest[0] === '#');
    if (comment && (!spec.spaced || /\s/.test(before))) return this.take('comment', rest.length);
    const meta = spec.meta?.exec(rest);
    if (meta && (at === 0 || !/^\^?\\s\*#/.test(spec.meta.source) || line.slice(0, at).trim() === '')) return this.take('meta', meta[0].length);
    if (this.string(rest)) return undefined;
    if (spec.flags && rest[0] === '-' && /\s/.test(before)) return this.take('key', /^-[\w-]*/.exec(rest)[0].length);
    const number = /[\w$]/.test(before) ? null : NUMBER.exec(rest);
    if (number) return this.take('number', number[0].length);
    const word = WORD.exec(rest);
    return word ? this.word(word[0], rest) : this.take('', 1);
  }

  enter(state, length) {
    this.take(state.kind, length);
    this.state = state;
  }

  string(rest) {
    const { spec } = this;
    if (spec.charLiteral && rest[0] === "'") {
      // A character, not a lifetime or label.
      const literal = /^'(?:\\.[^']*|[^'\\])'/u.exec(rest);
      if (!literal) return false;
      this.take('string', literal[0].length);
      return true;
    }
    const quote = (spec.strings ?? []).find((s) => rest.startsWith(s.open));
    if (!quote) return false;
    if (spec.keys && /^"(?:[^"\\]|\\.)*"\s*:/.test(rest)) {
      this.take('key', /^"(?:[^"\\]|\\.)*"/.exec(rest)[0].length);
      return true;
    }
    this.enter({ end: quote.open, kind: 'string', raw: quote.raw, escape: quote.escape, lines: quote.lines, depth: 1 }, quote.open.length);
    return true;
  }

  word(word, rest) {
    const { spec } = this;
    const key = spec.ignoreCase ? word.toLowerCase() : word;
    const next = rest.slice(word.length);
    if (spec.prefix?.test(word) && /^["']/.test(next)) return this.take('string', word.length);
    const kind = spec.words?.has(key) ? 'word' : spec.values?.has(key) ? 'value' : spec.types?.has(key) ? 'type'
      : spec.calls && /^!?\(/.test(next) ? 'call' : (spec.calls || spec.upperTypes) && /^[A-Z][a-z]/.test(word) ? 'type' : '';
    return this.take(kind, word.length);
  }
}
