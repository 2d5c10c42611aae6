// Inline Markdown → a tree of plain objects. Raw HTML has no meaning here: a "<" is a character.
// Emphasis follows CommonMark's delimiter-run rules. Work is linear in the text except for brackets and
// code spans, whose failed searches are remembered so that hostile text cannot make them quadratic.
//
// Nodes: {t:'text',v} {t:'code',v} {t:'math',v,display} {t:'break'} {t:'link',href,c} {t:'image',alt,src}
//        {t:'footref',v} and {t:'em'|'strong'|'del',c}.

/** Deeper nesting is left as text: no person reads it, and rendering is recursive. */
const INLINE_DEPTH_MAX = 40;

const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', copy: '©', reg: '®', mdash: '—', ndash: '–', hellip: '…', times: '×', deg: '°', larr: '←', rarr: '→', minus: '−' };
const PUNCTUATION = /[!-/:-@[-`{-~\p{P}\p{S}]/u;
const BARE_URL = /^https?:\/\/[^\s<>"`]+/i;
const AUTOLINK = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/i;
const ENTITY = /^&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-zA-Z]{2,8}));/;

export function parseInline(source) {
  return new InlineParser(source).parse();
}

class InlineParser {
  constructor(source) {
    this.source = source;
    this.at = 0;
    /** Flat list of nodes; emphasis and links fold slices of it. */
    this.nodes = [];
    this.brackets = [];
    /** Backtick run lengths known to have no closing run after `at`. */
    this.noCloser = new Map();
    this.text = '';
  }

  parse() {
    const { source } = this;
    while (this.at < source.length) {
      const c = source[this.at];
      const handled =
        (c === '\\' && this.escape()) || (c === '`' && this.codeSpan()) || (c === '$' && this.dollarMath()) ||
        ((c === '*' || c === '_' || c === '~') && this.delimiterRun(c)) || (c === '!' && this.imageOpen()) ||
        (c === '[' && this.bracketOpen()) || (c === ']' && this.bracketClose()) || (c === '<' && this.autolink()) ||
        (c === '\n' && this.lineBreak()) || (c === '&' && this.entity()) || ((c === 'h' || c === 'H') && this.bareUrl());
      if (!handled) {
        this.text += c;
        this.at++;
      }
    }
    this.flush();
    return mergeText(foldEmphasis(this.nodes));
  }

  flush() {
    if (this.text) this.nodes.push({ t: 'text', v: this.text });
    this.text = '';
  }

  push(node, length) {
    this.flush();
    this.nodes.push(node);
    this.at += length;
    return true;
  }

  escape() {
    const next = this.source[this.at + 1];
    if (next === '(' || next === '[') {
      const close = next === '(' ? '\\)' : '\\]';
      const end = this.noCloser.has(close) ? -1 : this.source.indexOf(close, this.at + 2);
      if (end < 0) this.noCloser.set(close, this.at);
      else return this.push({ t: 'math', v: this.source.slice(this.at + 2, end).trim(), display: next === '[' }, end + 2 - this.at);
    }
    if (next === '\n') {
      return this.push({ t: 'break' }, 2);
    }
    if (next && /[!-/:-@[-`{-~]/.test(next)) {
      this.text += next;
      this.at += 2;
      return true;
    }
    return false;
  }

  codeSpan() {
    const { source, at } = this;
    let run = 1;
    while (source[at + run] === '`') run++;
    if ((this.noCloser.get(run) ?? Infinity) <= at) {
      this.text += '`'.repeat(run);
      this.at += run;
      return true;
    }
    let search = at + run;
    while (search < source.length) {
      const open = source.indexOf('`', search);
      if (open < 0) break;
      let length = 1;
      while (source[open + length] === '`') length++;
      if (length === run) {
        let code = source.slice(at + run, open).replace(/\n/g, ' ');
        if (code.startsWith(' ') && code.endsWith(' ') && code.trim()) code = code.slice(1, -1);
        return this.push({ t: 'code', v: code }, open + run - at);
      }
      search = open + length;
    }
    this.noCloser.set(run, at);
    this.text += '`'.repeat(run);
    this.at += run;
    return true;
  }

  /** `$x$` counts as math only if nothing suggests money: no space inside the signs, no digit behind. */
  dollarMath() {
    const { source, at } = this;
    if (source[at + 1] === '$') {
      const end = source.indexOf('$$', at + 2);
      if (end > at + 2) return this.push({ t: 'math', v: source.slice(at + 2, end).trim(), display: true }, end + 2 - at);
      this.text += '$$';
      this.at += 2;
      return true;
    }
    if (/\s/.test(source[at + 1] ?? ' ')) return false;
    const end = source.indexOf('$', at + 1);
    if (end < 0 || end - at > 1000 || /[\s\\]/.test(source[end - 1]) || /\d/.test(source[end + 1] ?? '')) return false;
    const body = source.slice(at + 1, end);
    if (body.includes('\n\n') || body.includes('`')) return false;
    return this.push({ t: 'math', v: body, display: false }, end + 1 - at);
  }

  delimiterRun(c) {
    const { source, at } = this;
    let run = 1;
    while (source[at + run] === c) run++;
    if (c === '~' && run !== 2) {
      this.text += c.repeat(run);
      this.at += run;
      return true;
    }
    const before = at === 0 ? ' ' : source[at - 1];
    const after = source[at + run] ?? ' ';
    const [spaceBefore, spaceAfter] = [/\s/.test(before), /\s/.test(after)];
    const [punctBefore, punctAfter] = [PUNCTUATION.test(before), PUNCTUATION.test(after)];
    const left = !spaceAfter && (!punctAfter || spaceBefore || punctBefore);
    const right = !spaceBefore && (!punctBefore || spaceAfter || punctAfter);
    const opens = c === '_' ? left && (!right || punctBefore) : left;
    const closes = c === '_' ? right && (!left || punctAfter) : right;
    return this.push({ t: 'delimiter', c, n: run, length: run, opens, closes }, run);
  }

  imageOpen() {
    if (this.source[this.at + 1] !== '[') return false;
    this.flush();
    this.brackets.push({ node: this.nodes.length, image: true, active: true });
    return this.push({ t: 'text', v: '![' }, 2);
  }

  bracketOpen() {
    const note = /^\[\^([^\]\s]{1,64})\]/.exec(this.source.slice(this.at, this.at + 70));
    if (note) return this.push({ t: 'footref', v: note[1] }, note[0].length);
    this.flush();
    this.brackets.push({ node: this.nodes.length, image: false, active: true });
    return this.push({ t: 'text', v: '[' }, 1);
  }

  bracketClose() {
    const opener = this.brackets.pop();
    if (!opener) return false;
    const target = opener.active && linkTarget(this.source, this.at + 1);
    if (!target) return false;
    this.flush();
    const inner = mergeText(foldEmphasis(this.nodes.splice(opener.node).slice(1)));
    if (opener.image) {
      this.nodes.push({ t: 'image', alt: plainText(inner), src: target.href });
    } else {
      this.nodes.push({ t: 'link', href: target.href, c: inner });
      // No links inside links.
      for (const outer of this.brackets) if (!outer.image) outer.active = false;
    }
    this.at = target.end;
    return true;
  }

  autolink() {
    const match = AUTOLINK.exec(this.source.slice(this.at, this.at + 2048));
    if (!match) return false;
    return this.push({ t: 'link', href: match[1], c: [{ t: 'text', v: match[1] }] }, match[0].length);
  }

  bareUrl() {
    const before = this.at === 0 ? ' ' : this.source[this.at - 1];
    if (/[\p{L}\p{N}]/u.test(before)) return false;
    const match = BARE_URL.exec(this.source.slice(this.at, this.at + 2048));
    if (!match) return false;
    // Closing punctuation belongs to the sentence, and so does a parenthesis without its partner.
    let url = match[0].replace(/[.,;:!?'"*_~\]]+$/, '');
    while (url.endsWith(')') && url.split(')').length > url.split('(').length) url = url.slice(0, -1);
    if (!/^https?:\/\/[^/]/i.test(url)) return false;
    return this.push({ t: 'link', href: url, c: [{ t: 'text', v: url }] }, url.length);
  }

  lineBreak() {
    const spaces = / *$/.exec(this.text)[0].length;
    this.text = this.text.slice(0, this.text.length - spaces);
    this.flush();
    this.at++;
    while (this.source[this.at] === ' ') this.at++;
    this.nodes.push(spaces >= 2 ? { t: 'break' } : { t: 'text', v: '\n' });
    return true;
  }

  entity() {
    const match = ENTITY.exec(this.source.slice(this.at, this.at + 12));
    if (!match) return false;
    const code = match[1] ? Number(match[1]) : match[2] ? parseInt(match[2], 16) : 0;
    const text = match[3] ? ENTITIES[match[3]] : code > 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? String.fromCodePoint(code) : undefined;
    if (text === undefined) return false;
    this.text += text;
    this.at += match[0].length;
    return true;
  }
}

/** `(destination "title")` at `at`; the title is read and dropped. */
function linkTarget(source, at) {
  if (source[at] !== '(') return null;
  const match = /^\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(source.slice(at, at + 4096));
  if (!match) return null;
  const href = (match[1] ?? match[2]).replace(/\\([!-/:-@[-`{-~])/g, '$1');
  return { href, end: at + match[0].length };
}

/** Pairs delimiter runs, in one pass with a stack of openers per kind. */
function foldEmphasis(nodes) {
  const out = [];
  const openers = [];
  for (const node of nodes) {
    if (node.t !== 'delimiter') {
      out.push(node);
      continue;
    }
    if (node.closes) closeEmphasis(out, openers, node);
    if (node.n > 0) {
      if (node.opens) openers.push({ node, at: out.length });
      out.push(node);
    }
  }
  return out.map((node) => (node.t === 'delimiter' ? { t: 'text', v: node.c.repeat(node.n) } : node));
}

function closeEmphasis(out, openers, closer) {
  for (let i = openers.length - 1; i >= 0 && closer.n > 0; i--) {
    const { node: opener, at } = openers[i];
    if (opener.c !== closer.c || opener.n === 0) continue;
    // The "multiple of three" rule of CommonMark, for runs that can both open and close.
    if ((opener.closes || closer.opens) && (opener.length + closer.length) % 3 === 0 && (opener.length % 3 || closer.length % 3)) continue;
    while (opener.n > 0 && closer.n > 0) {
      const width = closer.c === '~' ? 2 : opener.n >= 2 && closer.n >= 2 ? 2 : 1;
      const inner = out.splice(at + 1).map((n) => (n.t === 'delimiter' ? { t: 'text', v: n.c.repeat(n.n) } : n));
      const depth = 1 + inner.reduce((deepest, n) => Math.max(deepest, n.depth ?? 0), 0);
      opener.n -= width;
      closer.n -= width;
      if (depth > INLINE_DEPTH_MAX) {
        const marks = closer.c.repeat(width);
        out.push({ t: 'text', v: marks }, ...inner, { t: 'text', v: marks });
      } else {
        out.push({ t: closer.c === '~' ? 'del' : width === 2 ? 'strong' : 'em', c: mergeText(inner), depth });
      }
    }
    openers.length = opener.n > 0 ? i + 1 : i;
    if (opener.n === 0) out.splice(at, 1);
  }
}

/** Joins neighbouring text nodes and drops bookkeeping. */
function mergeText(nodes) {
  const merged = [];
  for (const node of nodes) {
    const last = merged.at(-1);
    if (node.t === 'text' && last?.t === 'text') merged[merged.length - 1] = { t: 'text', v: last.v + node.v };
    else merged.push(node);
  }
  return merged;
}

/** The words of inline nodes without their form. */
export function plainText(nodes) {
  return nodes.map((node) => node.v ?? node.alt ?? (node.c ? plainText(node.c) : ' ')).join('');
}
