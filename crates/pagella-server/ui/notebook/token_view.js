// Tokens of a text with their probabilities: tinted by how likely they were, with the alternatives of
// each; choosing one cuts the text there and goes on from it.

import { el, fill, setText } from '../page/element.js';
import { formatProbability } from '../page/format.js';
import { say } from '../page/words.js';

/** Bytes that are no text alone are written as bytes. */
const visiblePiece = (text) => text.replace(/^bytes:(?=\\x)/, '').replace(/ /g, '·').replace(/\n/g, '⏎\n').replace(/\t/g, '→\t') || '∅';
const probability = (logprob) => (typeof logprob === 'number' ? Math.exp(logprob) : null);

/** Surprise in five steps, so that the tint can be read and not only seen. */
export const tintOf = (p) => (p === null ? 'none' : p >= 0.8 ? '0' : p >= 0.5 ? '1' : p >= 0.2 ? '2' : p >= 0.05 ? '3' : '4');

/** exp of the mean surprise of tokens whose probability is known; null without any. */
export function perplexity(tokens) {
  const known = tokens.filter((token) => typeof token.logprob === 'number' && token.logprob > -9999);
  return known.length ? Math.exp(-known.reduce((sum, token) => sum + token.logprob, 0) / known.length) : null;
}

export class TokenView {
  #tokens = [];

  /** `onChoose(offset, text)`: the text is to be cut at `offset` and continued with `text`. */
  constructor(onChoose) {
    this.onChoose = onChoose;
    this.flow = el('div.token-flow', { role: 'listbox', 'aria-label': say('tokens.label'), tabIndex: 0 });
    this.detail = el('div.token-detail', { 'aria-live': 'polite' }, el('p.plain-note', null, say('tokens.hint')));
    this.node = el('div.token-view', null, this.flow, this.detail);
    this.flow.addEventListener('click', (event) => this.#select(event.target.closest('.token')));
    this.flow.addEventListener('pointerover', (event) => this.#show(event.target.closest('.token')));
    this.flow.addEventListener('keydown', (event) => this.#key(event));
  }

  /** `tokens`: `{text, id, logprob, top, at}` in order; `at` is where a token stands in the text. */
  update(tokens) {
    this.#tokens = tokens;
    fill(this.flow, tokens.map((token, i) => {
      const p = probability(token.logprob);
      const node = el('span.token', { role: 'option', id: `token-${i}`, class: `tint-${tintOf(p)}`, data: { index: String(i) }, title: [token.id, p === null ? '' : formatProbability(p)].filter((x) => x !== null && x !== '').join(' · ') }, visiblePiece(token.text));
      return node;
    }));
    this.shown = null;
  }

  #select(node) {
    if (!node) return;
    this.flow.querySelector('[aria-selected="true"]')?.setAttribute('aria-selected', 'false');
    node.setAttribute('aria-selected', 'true');
    this.flow.setAttribute('aria-activedescendant', node.id);
    node.scrollIntoView({ block: 'nearest' });
    this.#show(node, true);
  }

  #key(event) {
    const now = this.flow.querySelector('[aria-selected="true"]');
    const next = { ArrowRight: now?.nextElementSibling ?? this.flow.firstElementChild, ArrowLeft: now?.previousElementSibling }[event.key];
    if (next) { event.preventDefault(); this.#select(next); }
    if (event.key === 'Enter') this.detail.querySelector('button')?.focus();
  }

  #show(node) {
    if (!node || this.shown === node) return;
    this.shown = node;
    const token = this.#tokens[Number(node.dataset.index)];
    const p = probability(token.logprob);
    const head = el('p.token-head', null, el('code', null, visiblePiece(token.text)), token.id === null ? null : ` id ${token.id}`, p === null ? null : ` · ${formatProbability(p)}`);
    const list = el('ol.alternatives', null, (token.top ?? []).slice(0, 10).map((other) => {
      const share = probability(other.logprob) ?? 0;
      const bar = el('span.alternative-bar', { 'aria-hidden': 'true', vars: { '--share': `${share * 100}%` } });
      return el('li', null, el('button.alternative', { type: 'button', class: other.text === token.text ? 'taken' : '', disabled: other.text.startsWith('bytes:'), on: { click: () => this.onChoose(token.at, other.text) } }, bar, el('code', null, visiblePiece(other.text)), el('span', null, formatProbability(share))));
    }));
    fill(this.detail, head, token.top?.length ? [el('p.plain-note', null, say('tokens.choose')), list] : el('p.plain-note', null, say('tokens.unknown')));
  }

  clear(message) {
    fill(this.flow);
    setText(this.detail, message);
  }
}
