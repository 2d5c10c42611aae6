// One message on the screen. Made cheap as a placeholder, drawn when it comes near the view; redraws only
// the part that changed. Asks `chat` for every action; changes nothing itself.

import { el, fill } from '../page/element.js';
import { button, freshId } from '../page/controls.js';
import { AnswerAnnouncer, announce } from '../page/announce.js';
import { formatCount, formatDate } from '../page/format.js';
import { openMenu } from '../page/menu.js';
import { settings } from '../page/settings.js';
import { say } from '../page/words.js';
import { siblingsOf } from '../data/tree.js';
import { MarkdownView } from '../render/markdown_view.js';
import { runOf } from './answer_run.js';
import { ReasoningView, attachmentNodes, footerNodes, rawNode, toolCallNodes, tokensNode } from './message_parts.js';
import { progressLine } from './progress_line.js';
import { isContextFull } from './statistics.js';

const LINE_CHARS = 80;
const LINE_PX = 26;

export class MessageView {
  drawn = false;
  #raw = false;
  #progress = null;
  #announcer = null;
  #unwatch = null;
  #paintAt_ms = 0;
  #frame = 0;

  constructor(chat, node) {
    this.chat = chat;
    this.model = node;
    const id = freshId('message');
    this.body = el('div.message-body');
    this.footer = el('div.message-footer');
    this.tools = el('div.message-tools', { role: 'toolbar', 'aria-label': say('message.actions') });
    this.head = el('h2.message-head', { id });
    this.node = el('article.message', { class: node.role, tabIndex: -1, 'aria-labelledby': id, data: { id: node.id } });
    // A guess of the height keeps the scroll bar honest before the message is drawn.
    const lines = node.content.length / LINE_CHARS + node.content.split('\n').length;
    this.node.style.setProperty('--guess', `${Math.round(60 + lines * LINE_PX)}px`);
    this.node.classList.add('undrawn');
  }

  /** Draws for the first time. */
  draw() {
    if (this.drawn) return;
    this.drawn = true;
    this.node.classList.remove('undrawn');
    this.node.append(this.head, this.body, this.footer, this.tools);
    this.refresh();
    const run = runOf(this.model.id);
    if (run) this.attach(run);
  }

  /** Draws everything anew, for example after an edit. */
  refresh() {
    if (!this.drawn) return;
    const { model } = this;
    fill(this.head, model.role === 'user' ? say('role.user') : model.role === 'tool' ? say('role.tool') : say('role.assistant'));
    this.head.title = formatDate(model.time);
    this.text = null;
    this.reasoning = null;
    if (this.#raw) fill(this.body, rawNode((model.reasoning ? `${model.reasoning}\n\n` : '') + model.content));
    else {
      fill(this.body);
      this.#drawBody();
    }
    this.#drawFooter();
    this.#drawTools();
  }

  #drawBody() {
    const { model, body } = this;
    const running = Boolean(runOf(model.id));
    if (model.attachments?.length && !this.attachments) {
      this.attachments = el('div.attachments', null, attachmentNodes(model.attachments));
    }
    if (this.attachments && this.attachments.parentNode !== body) body.append(this.attachments);
    if (model.reasoning) {
      if (!this.reasoning) {
        this.reasoning = new ReasoningView(running);
        body.prepend(this.reasoning.node);
      }
      this.reasoning.update(model, running && !model.content);
    }
    if (!this.text) {
      this.text = new MarkdownView();
      body.append(this.text.node);
    }
    // A person's own words are shown as typed, with code and emphasis; the model's the same way.
    this.text.update(model.content);
    if (model.toolCalls?.length) {
      this.calls ??= el('div.tool-calls');
      fill(this.calls, toolCallNodes(model.toolCalls));
      body.append(this.calls);
    }
  }

  /** Shows a running answer: at once for the first text, then at most every 33 ms. */
  attach(run) {
    this.#unwatch?.();
    this.node.classList.add('running');
    this.#announcer = new AnswerAnnouncer();
    this.#drawFooter();
    this.#drawTools();
    this.#unwatch = run.onChange(() => {
      if (run.state.value.phase === 'done') return this.#finish();
      if (this.#frame) return undefined;
      const wait_ms = this.#paintAt_ms ? Math.max(0, 33 - (performance.now() - this.#paintAt_ms)) : 0;
      this.#frame = wait_ms < 4 ? requestAnimationFrame(() => this.#paint()) : setTimeout(() => this.#paint(), wait_ms);
      return undefined;
    });
  }

  #paint() {
    this.#frame = 0;
    if (!this.node.isConnected || this.editing) return;
    this.#paintAt_ms = performance.now();
    if (!this.#raw) this.#drawBody();
    else fill(this.body, rawNode(this.model.content));
    if (settings.value.announceText && settings.value.announce) this.#announcer.feed(this.model.content);
    this.chat.grew();
  }

  #finish() {
    this.#unwatch?.();
    this.#unwatch = null;
    this.node.classList.remove('running');
    if (!this.#raw && !this.editing) this.#drawBody();
    this.chat.grew();
    if (settings.value.announce) {
      if (settings.value.announceText) this.#announcer.feed(this.model.content, true);
      const tokens = this.model.usage?.completion_tokens;
      announce(this.model.error ? this.model.error.message : say('announce.done', { n: tokens === undefined ? '' : formatCount(tokens) }));
    }
    this.#drawFooter();
    this.#drawTools();
  }

  #drawFooter() {
    const { model, chat } = this;
    this.#progress?.dispose();
    this.#progress = null;
    const run = runOf(model.id);
    if (run) {
      this.#progress = progressLine(run);
      fill(this.footer, this.#progress);
    } else if (model.role === 'assistant') {
      fill(this.footer, footerNodes(model, {
        onContinue: () => chat.continueFrom(model), onMoveOn: () => chat.moveOn(), onReuseSeed: () => chat.reuseSeed(model.seed), onRetry: () => chat.regenerate(model), onResume: () => chat.resume(model),
      }));
    } else fill(this.footer);
  }

  #drawTools() {
    const { model, chat } = this;
    if (runOf(model.id) || chat.readOnly) return fill(this.tools, this.#siblings());
    const own = model.role === 'user';
    const more = button({ label: say('more'), icon: 'more', 'aria-haspopup': 'menu', onClick: () => openMenu(more, this.#moreItems()) });
    return fill(this.tools, this.#siblings(),
      button({ label: say('copy'), icon: 'copy', onClick: () => chat.copy(model) }),
      button({ label: say('edit'), icon: 'edit', keys: 'Alt+E', onClick: () => this.edit() }),
      own ? null : button({ label: say('regenerate'), icon: 'redo', keys: 'Alt+R', onClick: () => chat.regenerate(model) }),
      own || isContextFull(model) ? null : button({ label: say('continue'), icon: 'forward', keys: 'Alt+C', onClick: () => chat.continueFrom(model) }),
      button({ label: say('branch'), icon: 'branch', onClick: () => chat.branch(model) }), more);
  }

  #moreItems() {
    const { model, chat } = this;
    const presets = model.role === 'assistant' ? chat.regenerateChoices(model) : [];
    return [
      ...presets, presets.length ? null : undefined,
      { label: say(this.#raw ? 'raw.hide' : 'raw.show'), run: () => { this.#raw = !this.#raw; this.refresh(); } },
      { label: say('tokens.show'), run: () => this.showTokens() },
      { label: say('compare.open'), icon: 'columns', run: () => chat.compare(model) }, null,
      { label: say('delete'), icon: 'bin', danger: true, run: () => chat.remove(model, false) },
      { label: say('deleteFrom'), icon: 'bin', danger: true, run: () => chat.remove(model, true) },
    ].filter((item) => item !== undefined);
  }

  #siblings() {
    const { ids, index } = siblingsOf(this.chat.tree, this.model.id);
    if (ids.length < 2) return null;
    return el('span.siblings', { role: 'group', 'aria-label': say('siblings') },
      button({ label: say('siblings.previous'), icon: 'left', disabled: index === 0, onClick: () => this.chat.sibling(this.model, -1) }),
      el('span', null, `${index + 1}/${ids.length}`),
      button({ label: say('siblings.next'), icon: 'right', disabled: index === ids.length - 1, onClick: () => this.chat.sibling(this.model, 1) }));
  }

  async showTokens() {
    const list = await this.chat.tokensOf(this.model);
    if (list) fill(this.body, tokensNode(list), button({ label: say('tokens.hide'), variant: 'link', onClick: () => this.refresh() }));
  }

  edit() {
    if (this.editing || runOf(this.model.id)) return;
    this.draw();
    const { model, chat } = this;
    const own = model.role === 'user';
    const area = el('textarea.edit-area', { value: model.content, 'aria-label': say('edit.label'), dir: 'auto' });
    const leave = () => {
      this.editing = false;
      this.refresh();
      this.node.focus();
    };
    const save = (then) => { this.editing = false; chat.saveEdit(model, area.value, then); };
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') { event.stopPropagation(); leave(); }
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && !event.isComposing) { event.preventDefault(); event.stopPropagation(); save(own ? 'answer' : 'save'); }
    });
    this.editing = true;
    fill(this.tools);
    fill(this.body, area, el('div.edit-actions', null,
      button({ label: say('cancel'), variant: 'plain', onClick: leave }),
      button({ label: say('edit.save'), variant: 'plain', title: say('edit.saveHelp'), onClick: () => save('save') }),
      own ? button({ label: say('edit.answer'), variant: 'primary', keys: 'Ctrl+Enter', onClick: () => save('answer') })
        : button({ label: say('edit.continue'), variant: 'primary', onClick: () => save('continue') })));
    area.style.setProperty('height', `${Math.min(480, area.scrollHeight + 4)}px`);
    area.focus();
  }
}
