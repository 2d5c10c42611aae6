// The list of shown messages. Messages far from the view are placeholders; coming near draws them.
// Owns scrolling: follow mode, the question at the top third, the button back to the newest line.

import { el, fill, setText } from '../page/element.js';
import { button } from '../page/controls.js';
import { say } from '../page/words.js';
import { activePath } from '../data/tree.js';
import { Follow } from './follow.js';
import { MessageView } from './message_view.js';

/** Messages within this distance of the view are drawn. */
const DRAW_MARGIN_PX = 1200;
/** Room below a fresh question, as a share of the view. */
const ROOM_SHARE = 0.68;

export class Transcript {
  views = new Map();
  #newLines = 0;
  #heightSeen = 0;
  /** The question that was asked last, while room is kept below it. */
  #question = null;

  constructor(chat) {
    this.chat = chat;
    this.top = el('div.transcript-top');
    this.list = el('div.messages', { role: 'log', 'aria-live': 'off', 'aria-label': say('transcript.label') });
    this.room = el('div.transcript-room', { 'aria-hidden': 'true' });
    this.scroller = el('div.transcript', { tabIndex: -1 }, el('div.transcript-column', null, this.top, this.list, this.room));
    this.jumpButton = button({ label: say('jump'), icon: 'down', showLabel: true, variant: 'jump', hidden: true, onClick: () => this.follow.jump() });
    this.node = el('div.transcript-frame', null, this.scroller, this.jumpButton);
    this.follow = new Follow(this.scroller, () => this.list.lastElementChild);
    this.follow.active.watch((active) => {
      if (active) this.#newLines = 0;
      this.#heightSeen = this.list.scrollHeight;
      this.#showJump();
    });
    this.scroller.addEventListener('scroll', () => this.#showJump(), { passive: true });
    this.observer = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) this.#drawNear(entry.target);
    }, { root: this.scroller, rootMargin: `${DRAW_MARGIN_PX}px 0px` });
  }

  #drawNear(target) {
    this.observer.unobserve(target);
    this.views.get(target.dataset.id)?.draw();
  }

  /** Shows the active path; keeps the views of messages that stay. */
  show({ toEnd = false } = {}) {
    const path = activePath(this.chat.tree);
    const kept = new Map();
    const nodes = path.map((model) => {
      const view = this.views.get(model.id) ?? new MessageView(this.chat, model);
      view.model = model;
      kept.set(model.id, view);
      return view.node;
    });
    for (const [id, view] of this.views) if (!kept.has(id)) this.observer.unobserve(view.node);
    this.views = kept;
    this.list.replaceChildren(...nodes);
    // The end is drawn at once, so that opening at the end shows text and not placeholders.
    for (const model of path.slice(-6)) kept.get(model.id).draw();
    for (const view of kept.values()) if (!view.drawn) this.observer.observe(view.node);
    if (toEnd) {
      this.#question = null;
      this.room.style.setProperty('min-height', '0px');
      this.follow.jump();
      requestAnimationFrame(() => { if (this.follow.active.value) this.follow.jump(); });
    }
  }

  clear() {
    for (const view of this.views.values()) this.observer.unobserve(view.node);
    this.views = new Map();
    fill(this.list);
  }

  /** Puts a fresh question into the top third, with empty room below so that it can stand there. */
  showQuestion(id) {
    const view = this.views.get(id);
    if (!view) return;
    this.#question = view.node;
    this.#fitRoom();
    this.follow.active.value = true;
    const offset = view.node.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top;
    this.follow.moveTo(this.scroller.scrollTop + offset - Math.min(96, this.scroller.clientHeight / 6));
  }

  /** The empty room shrinks by what the answer takes. */
  #fitRoom() {
    if (!this.#question) return;
    const answer_px = this.list.getBoundingClientRect().bottom - this.#question.getBoundingClientRect().bottom;
    this.room.style.setProperty('min-height', `${Math.max(0, Math.round(this.scroller.clientHeight * ROOM_SHARE - answer_px))}px`);
  }

  /** Text grew somewhere. */
  grew() {
    this.#fitRoom();
    this.follow.grew();
    if (!this.follow.active.value) {
      this.#newLines = Math.max(0, Math.round((this.list.scrollHeight - this.#heightSeen) / 26));
      this.#showJump();
    }
  }

  #showJump() {
    const hidden = this.follow.active.value || this.follow.below_px() <= 40 || this.views.size === 0;
    this.jumpButton.hidden = hidden;
    if (!hidden) setText(this.jumpButton.querySelector('span'), this.#newLines > 0 ? say('jump.lines', { n: this.#newLines }) : say('jump'));
  }

  /** The message that has the focus, or the last one. */
  focusedView() {
    const id = document.activeElement?.closest?.('.message')?.dataset.id;
    return this.views.get(id) ?? null;
  }

  lastView(role) {
    return [...this.views.values()].reverse().find((view) => !role || view.model.role === role) ?? null;
  }

  /** Moves the focus to the next or previous message. */
  moveFocus(step) {
    const all = [...this.views.values()];
    const at = all.indexOf(this.focusedView());
    const next = at < 0 ? all.at(-1) : all[at + step];
    next?.draw();
    next?.node.focus({ preventScroll: true });
    next?.node.scrollIntoView({ block: 'nearest' });
  }
}
