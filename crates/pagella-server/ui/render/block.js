// Block Markdown → a list of plain objects, and a reader that follows a growing text.
// A block never depends on text behind the second complete line of the next one; `GrowingBlocks` freezes
// blocks by that rule, so each update costs the open block only and the result equals one whole parse.
//
// Blocks: {t:'p'|'heading',s,level?} {t:'code',lang,text,closed} {t:'math',v,closed,after} {t:'quote',c} {t:'rule'}
//   {t:'list',ordered,start,tight,items:[{task,c}]} {t:'table',align,head,rows} {t:'footnote',label,c}
// `s` is inline source; `from` is the line on which a block starts.

const BLOCK_DEPTH_MAX = 12;
const COLUMNS_MAX = 64;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const BULLET = /^( {0,3})([-*+])(?:( +)(.*)|$)/;
const ORDERED = /^( {0,3})(\d{1,9})([.)])(?:( +)(.*)|$)/;
const DELIMITER_ROW = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const FOOTNOTE = /^ {0,3}\[\^([^\]\s]{1,64})\]:\s*(.*)$/;
const MATH_OPEN = /^ {0,3}(\$\$|\\\[)(.*)$/;

const isBlank = (line) => /^\s*$/.test(line);

export function parseBlocks(lines, depth = 0) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at++;
      continue;
    }
    const [block, next] = readBlock(lines, at, depth);
    block.from = at;
    blocks.push(block);
    at = next;
  }
  return blocks;
}

/** The whole text at once. */
export const parseMarkdown = (text) => parseBlocks(splitLines(text));

const splitLines = (text) => text.replace(/\r\n?/g, '\n').split('\n').map(expandTabs);

function expandTabs(line) {
  const indent = /^[ \t]*/.exec(line)[0];
  if (!indent.includes('\t')) return line;
  let column = 0;
  for (const c of indent) column += c === '\t' ? 4 - (column % 4) : 1;
  return ' '.repeat(column) + line.slice(indent.length);
}

function readBlock(lines, at, depth) {
  const line = lines[at];
  const nested = depth < BLOCK_DEPTH_MAX;
  let match;
  if ((match = FENCE.exec(line))) return readFence(lines, at, match);
  if ((match = startsMath(line))) return readMath(lines, at, match);
  if ((match = HEADING.exec(line))) return [{ t: 'heading', level: match[1].length, s: match[2] ?? '' }, at + 1];
  if (RULE.test(line)) return [{ t: 'rule' }, at + 1];
  if (nested && QUOTE.test(line)) return readQuote(lines, at, depth);
  if (nested && (BULLET.test(line) || ORDERED.test(line))) return readList(lines, at, depth);
  if (nested && (match = FOOTNOTE.exec(line))) return readFootnote(lines, at, match, depth);
  if (startsTable(lines, at)) return readTable(lines, at);
  if (/^ {4}/.test(line)) return readIndentedCode(lines, at);
  return readParagraph(lines, at);
}

/** Whether this line ends a paragraph that stands before it. */
function interrupts(lines, at) {
  const line = lines[at];
  const bullet = BULLET.exec(line) ?? ORDERED.exec(line);
  return isBlank(line) || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) ||
    (bullet && bullet.at(-1)) || FOOTNOTE.test(line) || startsMath(line) || startsTable(lines, at);
}

function readParagraph(lines, at) {
  const text = [lines[at].trimStart()];
  let next = at + 1;
  for (; next < lines.length; next++) {
    const underline = /^ {0,3}(=+|-+)\s*$/.exec(lines[next]);
    if (underline) return [{ t: 'heading', level: underline[1][0] === '=' ? 1 : 2, s: text.join('\n').trim() }, next + 1];
    if (interrupts(lines, next)) break;
    text.push(lines[next].trimStart());
  }
  return [{ t: 'p', s: text.join('\n').trimEnd() }, next];
}

function readFence(lines, at, match) {
  const indent = /^ */.exec(lines[at])[0].length;
  const close = new RegExp(`^ {0,3}${match[1][0]}{${match[1].length},}\\s*$`);
  const unindent = new RegExp(`^ {0,${indent}}`);
  const text = [];
  let next = at + 1;
  let closed = false;
  for (; next < lines.length; next++) {
    if (close.test(lines[next])) {
      closed = true;
      next++;
      break;
    }
    text.push(indent ? lines[next].replace(unindent, '') : lines[next]);
  }
  return [{ t: 'code', lang: (match[2].trim().split(/\s+/)[0] ?? '').toLowerCase(), text: text.join('\n'), closed }, next];
}

function readIndentedCode(lines, at) {
  const text = [];
  let next = at;
  while (next < lines.length && (isBlank(lines[next]) || /^ {4}/.test(lines[next]))) text.push(lines[next++].slice(4));
  while (text.length && isBlank(text.at(-1))) text.pop();
  return [{ t: 'code', lang: '', text: text.join('\n'), closed: true }, next];
}

/** Whether a line begins display math: an opener that is not closed again with words behind it. */
function startsMath(line) {
  const match = MATH_OPEN.exec(line);
  if (!match) return null;
  const end = match[2].indexOf(match[1] === '$$' ? '$$' : '\\]');
  return end >= 0 && !isBlank(match[2].slice(end + 2)) ? null : match;
}

/** Ends at the closing sign, or unclosed at a blank line; words behind the sign are `after`. */
function readMath(lines, at, match) {
  const close = match[1] === '$$' ? '$$' : '\\]';
  const parts = [];
  let next = at;
  for (; next < lines.length && (next === at || !isBlank(lines[next])); next++) {
    const line = next === at ? match[2] : lines[next];
    const end = line.indexOf(close);
    if (end >= 0) {
      parts.push(line.slice(0, end));
      return [{ t: 'math', v: parts.join('\n').trim(), closed: true, after: line.slice(end + 2).trim() }, next + 1];
    }
    parts.push(line);
  }
  return [{ t: 'math', v: match[1] + parts.join('\n').trimEnd(), closed: false, after: '' }, next];
}

function readQuote(lines, at, depth) {
  const inner = [];
  let next = at;
  for (; next < lines.length; next++) {
    if (QUOTE.test(lines[next])) inner.push(lines[next].replace(QUOTE, ''));
    else if (!isBlank(inner.at(-1) ?? '') && !interrupts(lines, next)) inner.push(lines[next].trimStart());
    else break;
  }
  return [{ t: 'quote', c: parseBlocks(inner, depth + 1) }, next];
}

function itemMarker(line) {
  let match = BULLET.exec(line);
  if (match) return { kind: match[2], start: null, indent: match[1].length, width: 1, gap: match[3], rest: match[4] ?? '' };
  match = ORDERED.exec(line);
  if (match) return { kind: match[3], start: Number(match[2]), indent: match[1].length, width: match[2].length + 1, gap: match[4], rest: match[5] ?? '' };
  return null;
}

function readList(lines, at, depth) {
  const first = itemMarker(lines[at]);
  const items = [];
  let next = at;
  let loose = false;
  while (next < lines.length) {
    const marker = RULE.test(lines[next]) ? null : itemMarker(lines[next]);
    if (!marker || marker.kind !== first.kind) break;
    const item = readItem(lines, next, marker, depth);
    items.push(item);
    next = item.next;
    let after = next;
    while (after < lines.length && isBlank(lines[after])) after++;
    const follower = after < lines.length && !RULE.test(lines[after]) ? itemMarker(lines[after]) : null;
    if (after > next && follower?.kind === first.kind) loose = true;
    if (item.loose) loose = true;
    if (follower?.kind === first.kind) next = after;
  }
  const list = { t: 'list', ordered: first.start !== null, start: first.start ?? 1, tight: !loose, items: items.map(({ task, c }) => ({ task, c })) };
  return [list, next];
}

function readItem(lines, at, marker, depth) {
  // More than four spaces behind the marker begin indented code inside the item.
  const gap = marker.gap === undefined || marker.gap.length > 4 ? 1 : marker.gap.length;
  const indent = marker.indent + marker.width + gap;
  const pad = marker.gap && marker.gap.length > 4 ? ' '.repeat(marker.gap.length - 1) : '';
  const task = /^\[([ xX])\]\s+(.*)$/.exec(marker.rest);
  const inner = [task ? task[2] : pad + marker.rest];
  let next = at + 1;
  let blank = false;
  for (; next < lines.length; next++) {
    const line = lines[next];
    if (isBlank(line)) {
      blank = true;
      inner.push('');
      continue;
    }
    if (/^ */.exec(line)[0].length >= indent) inner.push(line.slice(indent));
    else if (!blank && !interrupts(lines, next) && !itemMarker(line)) inner.push(line.trimStart());
    else break;
    blank = false;
  }
  while (inner.length && isBlank(inner.at(-1))) {
    inner.pop();
    next--;
  }
  const c = parseBlocks(inner, depth + 1);
  const loose = c.length > 1 && c.some((block, i) => i > 0 && isBlank(inner[block.from - 1] ?? 'x'));
  return { task: task ? task[1] !== ' ' : null, c, next: Math.max(next, at + 1), loose };
}

function readFootnote(lines, at, match, depth) {
  const inner = [match[2]];
  let next = at + 1;
  while (next < lines.length && !isBlank(lines[next]) && (/^ {2,}/.test(lines[next]) || !interrupts(lines, next))) inner.push(lines[next++].trimStart());
  return [{ t: 'footnote', label: match[1], c: parseBlocks(inner, depth + 1) }, next];
}

function startsTable(lines, at) {
  const row = lines[at + 1];
  if (row === undefined || !row.includes('-') || !lines[at].includes('|') || !DELIMITER_ROW.test(row)) return false;
  return splitRow(lines[at]).length === splitRow(row).length;
}

/** Cells of a table row; a bar inside a code span or behind a backslash does not divide. */
function splitRow(line) {
  const cells = [];
  let cell = '';
  let inCode = false;
  const text = line.trim().replace(/^\|/, '');
  for (let i = 0; i < text.length; i++) {
    if (text[i] === '\\' && text[i + 1] === '|') {
      cell += '|';
      i++;
    } else if (text[i] === '|' && !inCode) {
      cells.push(cell.trim());
      cell = '';
    } else {
      if (text[i] === '`') inCode = !inCode && text.indexOf('`', i + 1) > 0;
      cell += text[i];
    }
  }
  if (cell.trim()) cells.push(cell.trim());
  return cells.slice(0, COLUMNS_MAX);
}

function readTable(lines, at) {
  const head = splitRow(lines[at]);
  const align = splitRow(lines[at + 1]).map((cell) => (cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'end') : cell.startsWith(':') ? 'start' : ''));
  const rows = [];
  let next = at + 2;
  while (next < lines.length && lines[next].includes('|') && !isBlank(lines[next]) && !FENCE.test(lines[next]) && !QUOTE.test(lines[next])) {
    const cells = splitRow(lines[next++]);
    rows.push(head.map((_, i) => cells[i] ?? ''));
  }
  return [{ t: 'table', align, head, rows }, next];
}

/** Blocks of a text that grows at its end. */
export class GrowingBlocks {
  blocks = [];
  #text = '';
  /** Where in the text the first block that may still change begins, and its index. */
  #openAt = 0;
  #openIndex = 0;

  /** Takes the text as it is now; returns the index of the first block that may have changed. */
  set(text) {
    if (!text.startsWith(this.#text)) {
      this.#openAt = 0;
      this.#openIndex = 0;
    }
    this.#text = text;
    const changed = this.#openIndex;
    const tail = text.slice(this.#openAt);
    const lines = splitLines(tail);
    const open = parseBlocks(lines);
    this.blocks = this.blocks.slice(0, changed).concat(open);
    this.#freeze(tail, lines.length - 1, open);
    return changed;
  }

  /** The last block that starts two complete lines before the end, and all behind it, stay open. */
  #freeze(tail, completeLines, open) {
    let last = -1;
    for (let i = 0; i < open.length; i++) if (open[i].from + 1 < completeLines) last = i;
    if (last <= 0) return;
    let offset = 0;
    const ends = /\r\n?|\n/g;
    for (let line = 0; line < open[last].from; line++) {
      ends.exec(tail);
      offset = ends.lastIndex;
    }
    this.#openAt += offset;
    this.#openIndex += last;
  }
}
