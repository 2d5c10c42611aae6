// The parts of a message besides its text: reasoning, tool calls, attachments, statistics, errors.

import { el, fill, setText } from '../page/element.js';
import { button } from '../page/controls.js';
import { copyText } from '../page/clipboard.js';
import { formatCount, formatSeconds } from '../page/format.js';
import { settings } from '../page/settings.js';
import { say } from '../page/words.js';
import { CodeView } from '../render/code_view.js';
import { MarkdownView } from '../render/markdown_view.js';
import { endingOf, isContextFull, statisticsOf } from './statistics.js';

/** Thoughts, folded away unless the setting opens them while they run. */
export class ReasoningView {
  constructor(running) {
    this.text = new MarkdownView();
    this.summary = el('span');
    this.scroller = el('div.reasoning-text', { tabIndex: 0 }, this.text.node);
    this.node = el('details.reasoning', { open: running && settings.value.openReasoning }, el('summary', null, this.summary), this.scroller);
    this.node.addEventListener('toggle', () => { if (this.node.open) this.text.update(this.latest ?? ''); });
  }

  update(node, running) {
    this.latest = node.reasoning;
    const tokens = node.usage?.completion_tokens_details?.reasoning_tokens;
    const words = running ? 'reasoning.running' : node.timing?.thought_s ? 'reasoning.for' : 'reasoning.done';
    setText(this.summary, say(words, { t: formatSeconds(node.timing?.thought_s) }) + (tokens ? ` · ${say('stat.tokens', { n: formatCount(tokens) })}` : ''));
    this.node.classList.toggle('running', running);
    if (!this.node.open) return;
    const atEnd = this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight < 40;
    this.text.update(node.reasoning);
    if (atEnd && running) this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}

/** Calls with their arguments pretty where they are JSON, exact where they are not. */
export function toolCallNodes(calls) {
  return calls.map((call) => {
    const view = new CodeView('json');
    view.update(prettyJson(call.arguments));
    return el('section.tool-call', { 'aria-label': say('tool.region', { name: call.name }) }, el('h3', null, say('tool.call'), ' ', el('code', null, call.name || '…')), view.node);
  });
}

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function attachmentNodes(attachments) {
  return attachments.map((item) => (item.kind === 'image'
    ? el('img.attached-image', { src: item.url, alt: item.name || say('attach.image') })
    : el('details.attached-text', null, el('summary', null, `${item.name} · ${say('attach.chars', { n: formatCount(item.text.length) })}`), el('pre', null, item.text))));
}

/** Under a finished answer. `actions`: `{onContinue, onMoveOn, onReuseSeed, onRetry, onResume}`. */
export function footerNodes(node, { onContinue, onMoveOn, onReuseSeed, onRetry, onResume }) {
  const ending = endingOf(node);
  const parts = [];
  if (node.error) {
    parts.push(el('div.message-error', { role: 'alert' }, el('p', null, node.error.message, node.error.param ? el('small', null, ` (${node.error.param})`) : null),
      button({ label: say('retry'), variant: 'plain', onClick: onRetry }), node.stream ? button({ label: say('resume'), variant: 'plain', onClick: onResume }) : null));
  }
  if (node.finish === 'length') {
    const goOn = isContextFull(node) ? button({ label: say('full.moveOn'), variant: 'primary', onClick: onMoveOn }) : button({ label: say('continue'), variant: 'primary', onClick: onContinue });
    parts.push(el('div.cut-short', null, el('span', null, ending), goOn));
  }
  const stats = statisticsOf(node).map(([key, value, help]) => el('span.stat', { title: help, data: { stat: key } }, value));
  const line = el('div.stats', null, node.model ? el('span.stat.model-name', { title: say('stat.model') }, node.model) : null, stats);
  if (ending && node.finish !== 'length') line.append(el('span.stat.ending', null, ending));
  if (node.seed !== null && node.seed !== undefined) {
    line.append(el('span.stat.seed', null, say('stat.seed', { n: String(node.seed) }), button({ label: say('seed.copy'), icon: 'copy', onClick: () => copyText(String(node.seed)) }), button({ label: say('seed.reuse'), variant: 'link', onClick: onReuseSeed })));
  }
  if (node.warnings?.length) line.append(el('span.stat.warning', null, say('stat.ignored', { names: node.warnings.join(', ') })));
  if (line.childNodes.length) parts.push(line);
  return parts;
}

/** Exact text: special characters, tokens and trailing spaces made visible, nothing interpreted. */
export function rawNode(text) {
  const pre = el('pre.raw');
  const marks = { '\t': '→\t', '\u00a0': '⍽', '\r': '␍' };
  for (const line of text.split(/(\n)/)) {
    if (line === '\n') {
      pre.append(el('span.mark', null, '⏎'), '\n');
      continue;
    }
    for (const part of line.split(/( +$|[\t\u00a0\r\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|<\|[^|>\s]{1,64}\|>)/)) {
      if (!part) continue;
      if (/^ +$/.test(part) && line.endsWith(part)) pre.append(el('span.mark', null, '·'.repeat(part.length)));
      else if (marks[part]) pre.append(el('span.mark', null, marks[part]));
      else if (/^[\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]$/.test(part)) pre.append(el('span.mark', null, `U+${part.codePointAt(0).toString(16).toUpperCase()}`));
      else if (part.startsWith('<|')) pre.append(el('span.mark', null, part));
      else pre.append(part);
    }
  }
  return pre;
}

/** Pieces of a token list, alternately tinted. */
export function tokensNode({ tokens, pieces }) {
  const visible = (piece) => (typeof piece === 'string' ? piece : '�').replace(/ /g, '·').replace(/\n/g, '⏎\n').replace(/\t/g, '→\t');
  return fill(el('div.token-list'), tokens.map((id, i) => el('span.token', { title: String(id) }, visible(pieces?.[i] ?? String(id)))));
}
