// LaTeX math subset → MathML as plain trees `[tag, attributes, children]`; strings are text.
// `parseLatex` returns null for anything it does not know: the page then shows the source, which is
// better than a wrong formula. Nothing is evaluated, and depth and length are bounded.

import { LATEX_ACCENTS, LATEX_ALPHABETS, LATEX_BIG, LATEX_FUNCTIONS, LATEX_LETTERS, LATEX_LIMIT_FUNCTIONS, LATEX_OPERATORS, LATEX_SPACES } from './latex_symbols.js';

const LATEX_CHARS_MAX = 5000;
const LATEX_DEPTH_MAX = 40;

class Unsupported extends Error {}

export function parseLatex(source, display = false) {
  if (source.length > LATEX_CHARS_MAX) return null;
  try {
    const parser = new LatexParser(source);
    const body = parser.row(() => false);
    if (parser.at < parser.tokens.length) return null;
    return ['math', display ? { display: 'block' } : {}, [mathRow(body)]];
  } catch (error) {
    if (error instanceof Unsupported) return null;
    throw error;
  }
}

const mathRow = (children) => (children.length === 1 ? children[0] : ['mrow', {}, children]);
const operator = (text, attributes = {}) => ['mo', attributes, [text]];

const thinSpace = () => ['mspace', { width: '0.167em' }, []];

function tokenize(source) {
  return source.replace(/%.*$/gm, '').match(/\\[a-zA-Z]+\*?|\\.|[^]/gu) ?? [];
}

class LatexParser {
  constructor(source) {
    this.tokens = tokenize(source);
    this.at = 0;
    this.depth = 0;
  }

  peek() {
    return this.tokens[this.at];
  }

  skipSpace() {
    while (/^\s$/.test(this.peek() ?? 'x')) this.at++;
  }

  /** Atoms with their scripts until `stop` says so or the tokens end. */
  row(stop) {
    if (++this.depth > LATEX_DEPTH_MAX) throw new Unsupported();
    const items = [];
    for (;;) {
      this.skipSpace();
      const token = this.peek();
      if (token === undefined || token === '}' || stop(token)) break;
      const named = LATEX_FUNCTIONS.has(token.slice(1));
      const atom = this.atom();
      if (!atom) continue;
      // A thin space on the sides of a named function, where no bracket keeps its distance already.
      if (named && items.length && items.at(-1)[0] !== 'mo') items.push(thinSpace());
      items.push(this.scripts(atom));
      this.skipSpace();
      if (named && this.peek() !== undefined && !/^(?:[()[\]{}|,&=+]|\\left|\\\\|\\right|\\end)$/.test(this.peek())) items.push(thinSpace());
    }
    this.depth--;
    return items;
  }

  /** `{…}` or one atom. */
  argument() {
    this.skipSpace();
    if (this.peek() === '{') return mathRow(this.group());
    // One digit, not the whole number: \frac12 is a half.
    if (/^[0-9]$/.test(this.peek() ?? '')) return ['mn', {}, [this.tokens[this.at++]]];
    const atom = this.atom();
    if (!atom) throw new Unsupported();
    return atom;
  }

  group() {
    this.expect('{');
    const items = this.row(() => false);
    this.expect('}');
    return items;
  }

  /** The raw text of `{…}`. */
  textArgument() {
    this.skipSpace();
    this.expect('{');
    let text = '';
    for (let open = 1; ; ) {
      const token = this.tokens[this.at++];
      if (token === undefined) throw new Unsupported();
      if (token === '{') open++;
      if (token === '}' && --open === 0) return text;
      text += token.length === 2 && /^\\[$%#&_{} ]/.test(token) ? token[1] : token;
    }
  }

  expect(token) {
    this.skipSpace();
    if (this.tokens[this.at++] !== token) throw new Unsupported();
  }

  scripts(atom) {
    let under = null;
    let over = null;
    let primes = '';
    for (;;) {
      this.skipSpace();
      const token = this.peek();
      if (token === "'") {
        primes += '′';
        this.at++;
      } else if (token === '_' && !under) {
        this.at++;
        under = this.argument();
      } else if (token === '^' && !over) {
        this.at++;
        over = this.argument();
      } else if (token === '\\limits' || token === '\\nolimits') {
        this.at++;
      } else {
        break;
      }
    }
    if (primes) over = over ? mathRow([operator(primes), over]) : operator(primes);
    if (!under && !over) return atom;
    const limits = atom[1].movablelimits !== undefined || atom[1].limits;
    const [both, low, high] = limits ? ['munderover', 'munder', 'mover'] : ['msubsup', 'msub', 'msup'];
    if (under && over) return [both, {}, [atom, under, over]];
    return under ? [low, {}, [atom, under]] : [high, {}, [atom, over]];
  }

  atom() {
    const token = this.tokens[this.at++];
    if (token === undefined) throw new Unsupported();
    if (token === '{') {
      this.at--;
      return mathRow(this.group());
    }
    if (token.startsWith('\\')) return this.command(token.slice(1));
    if (/^[0-9]$/.test(token)) return this.number(token);
    if (/^\p{L}$/u.test(token)) return ['mi', {}, [token]];
    if (token === '~') return ['mspace', { width: '0.333em' }, []];
    if (token === '-') return operator('−');
    if (token === '*') return operator('∗');
    if (/^[+=<>()[\]|/:;,.!?]$/.test(token)) return operator(token, /[()[\]|]/.test(token) ? { stretchy: 'false' } : {});
    if (/^[^\x00-\x7f]$/u.test(token)) return operator(token);
    throw new Unsupported();
  }

  number(first) {
    let text = first;
    while (/^[0-9]$/.test(this.peek() ?? '') || (/^[.,]$/.test(this.peek() ?? '') && /^[0-9]$/.test(this.tokens[this.at + 1] ?? ''))) text += this.tokens[this.at++];
    return ['mn', {}, [text]];
  }

  command(name) {
    if (Object.hasOwn(LATEX_SPACES, name)) return ['mspace', { width: LATEX_SPACES[name] }, []];
    if (Object.hasOwn(LATEX_LETTERS, name)) return ['mi', {}, [LATEX_LETTERS[name]]];
    if (Object.hasOwn(LATEX_OPERATORS, name)) return operator(LATEX_OPERATORS[name]);
    if (Object.hasOwn(LATEX_BIG, name)) return operator(LATEX_BIG[name], { movablelimits: name.endsWith('int') ? undefined : 'true' });
    if (LATEX_FUNCTIONS.has(name)) return ['mi', { mathvariant: 'normal', limits: LATEX_LIMIT_FUNCTIONS.has(name) || undefined }, [name.replace(/^arg(?=m)/, 'arg\u2009').replace(/^lim(?=[si])/, 'lim\u2009')]];
    if (Object.hasOwn(LATEX_ALPHABETS, name)) return this.alphabet(LATEX_ALPHABETS[name]);
    if (Object.hasOwn(LATEX_ACCENTS, name)) return ['mover', { accent: 'true' }, [this.argument(), operator(LATEX_ACCENTS[name], { stretchy: /wide|over/.test(name) ? 'true' : 'false' })]];
    if (/^[{}$%#&_|]$/.test(name)) return operator(name === '|' ? '‖' : name, { stretchy: 'false' });
    return this.construct(name);
  }

  construct(name) {
    switch (name) {
      case 'frac': case 'dfrac': case 'tfrac': case 'cfrac':
        return ['mfrac', {}, [this.argument(), this.argument()]];
      case 'binom': case 'dbinom': case 'tbinom':
        return ['mrow', {}, [operator('('), ['mfrac', { linethickness: '0' }, [this.argument(), this.argument()]], operator(')')]];
      case 'sqrt':
        return this.root();
      case 'text': case 'textrm': case 'textbf': case 'textit': case 'mbox':
        return ['mtext', {}, [this.textArgument()]];
      case 'mathrm': case 'operatorname': case 'operatorname*':
        return ['mi', { mathvariant: 'normal' }, [this.textArgument().replace(/\s+/g, ' ')]];
      case 'mathit': case 'boldsymbol': case 'bm': case 'displaystyle': case 'textstyle': case 'scriptstyle':
        return /style$/.test(name) ? null : this.argument();
      case 'overline':
        return ['mover', { accent: 'true' }, [this.argument(), operator('‾', { stretchy: 'true' })]];
      case 'underline':
        return ['munder', { accentunder: 'true' }, [this.argument(), operator('_', { stretchy: 'true' })]];
      case 'underbrace':
        return ['munder', { limits: true }, [this.argument(), operator('⏟', { stretchy: 'true' })]];
      case 'overbrace':
        return ['mover', { limits: true }, [this.argument(), operator('⏞', { stretchy: 'true' })]];
      case 'overset': case 'stackrel': {
        const top = this.argument();
        return ['mover', {}, [this.argument(), top]];
      }
      case 'underset': {
        const bottom = this.argument();
        return ['munder', {}, [this.argument(), bottom]];
      }
      case 'boxed':
        return ['mrow', { class: 'math-boxed' }, [this.argument()]];
      case 'left':
        return this.fence();
      case 'big': case 'Big': case 'bigg': case 'Bigg': case 'bigl': case 'bigr': case 'Bigl': case 'Bigr': case 'biggl': case 'biggr': case 'middle':
        return operator(this.delimiter(), { stretchy: 'true' });
      case 'not': {
        const negated = this.atom();
        if (negated?.[0] !== 'mo') throw new Unsupported();
        return operator(negated[2][0] + '\u0338');
      }
      case 'pmod':
        return ['mrow', {}, [operator('('), ['mi', { mathvariant: 'normal' }, ['mod']], ['mspace', { width: '0.333em' }, []], this.argument(), operator(')')]];
      case 'bmod': case 'mod':
        return operator('mod');
      case 'begin':
        return this.environment();
      default:
        throw new Unsupported();
    }
  }

  root() {
    this.skipSpace();
    if (this.peek() !== '[') return ['msqrt', {}, [this.argument()]];
    this.at++;
    const index = mathRow(this.row((token) => token === ']'));
    this.expect(']');
    return ['mroot', {}, [this.argument(), index]];
  }

  alphabet(table) {
    const text = this.textArgument();
    const letters = [...text].map((c) => {
      if (table.exceptions[c]) return table.exceptions[c];
      const first = c >= 'A' && c <= 'Z' ? 'A' : c >= 'a' && c <= 'z' ? 'a' : c >= '0' && c <= '9' ? '0' : null;
      if (!first || table[first] === undefined) throw new Unsupported();
      return String.fromCodePoint(table[first] + c.charCodeAt(0) - first.charCodeAt(0));
    });
    return ['mi', {}, [letters.join('')]];
  }

  delimiter() {
    this.skipSpace();
    const token = this.tokens[this.at++];
    if (token === undefined) throw new Unsupported();
    if (/^[()[\]|/.<>]$/.test(token)) return token === '.' ? '' : token === '<' ? '⟨' : token === '>' ? '⟩' : token;
    if (/^\\[{}|]$/.test(token)) return token === '\\|' ? '‖' : token[1];
    const name = token.slice(1);
    if (Object.hasOwn(LATEX_OPERATORS, name)) return LATEX_OPERATORS[name];
    throw new Unsupported();
  }

  fence() {
    const open = this.delimiter();
    const body = this.row((token) => token === '\\right');
    this.expect('\\right');
    const close = this.delimiter();
    const side = (text) => (text ? [operator(text, { fence: 'true', stretchy: 'true' })] : []);
    return ['mrow', {}, [...side(open), ...body, ...side(close)]];
  }

  environment() {
    const name = this.textArgument();
    const sides = { matrix: ['', ''], pmatrix: ['(', ')'], bmatrix: ['[', ']'], Bmatrix: ['{', '}'], vmatrix: ['|', '|'], Vmatrix: ['‖', '‖'], cases: ['{', ''], aligned: ['', ''], align: ['', ''], 'align*': ['', ''], gathered: ['', ''], array: ['', ''], smallmatrix: ['', ''], split: ['', ''] }[name];
    if (!sides) throw new Unsupported();
    if (name === 'array') this.textArgument();
    const rows = [[]];
    const ends = (token) => token === '&' || token === '\\\\' || token === '\\end';
    for (;;) {
      rows.at(-1).push(mathRow(this.row(ends)));
      const token = this.tokens[this.at++];
      if (token === '\\\\') rows.push([]);
      else if (token === '\\end') break;
      else if (token !== '&') throw new Unsupported();
    }
    if (this.textArgument() !== name) throw new Unsupported();
    const last = rows.at(-1);
    if (rows.length > 1 && last.length === 1 && last[0][0] === 'mrow' && last[0][2].length === 0) rows.pop();
    const aligned = /^(align|split)/.test(name);
    const table = ['mtable', { class: aligned ? 'math-aligned' : name === 'cases' ? 'math-cases' : undefined, displaystyle: aligned ? 'true' : undefined },
      rows.map((cells) => ['mtr', {}, cells.map((cell) => ['mtd', {}, [cell]])])];
    const side = (text) => (text ? [operator(text, { fence: 'true', stretchy: 'true' })] : []);
    return ['mrow', {}, [...side(sides[0]), table, ...side(sides[1])]];
  }
}
