// Where the next message is written: text, attachments, the start of the answer, the context gauge, and
// one button that sends or stops. Keeps the draft at every keystroke.

import { el, fill, setAttribute, setText } from '../page/element.js';
import { afterQuiet } from '../page/cell.js';
import { button, relabel } from '../page/controls.js';
import { chooseFiles } from '../page/clipboard.js';
import { formatCompact, formatCount, formatPercent } from '../page/format.js';
import { drafts, settings } from '../page/settings.js';
import { showError, toast } from '../page/toast.js';
import { say } from '../page/words.js';
import { postJson } from '../net/api.js';
import { connection, contextTokens, currentModel, hasCapability } from '../net/connection.js';
import { PASTE_CHARS_MAX, acceptedFiles, readAttachmentFile, tooManyImages } from './attachments.js';
import { answersRunning } from './answer_run.js';
import { countedMessage } from './chat_request.js';

const COUNT_QUIET_MS = 400;
const isTouch = () => matchMedia('(pointer: coarse)').matches;

export class Composer {
  attachments = [];
  #count = afterQuiet(COUNT_QUIET_MS, () => this.#measure());
  /** Which measurement is the last one; the answer to any other is void, also to one of the conversation before. */
  #measureNumber = 0;
  /** Whether the conversation with this draft leaves no room for an answer. */
  #full = false;

  constructor(chat) {
    this.chat = chat;
    this.area = el('textarea.composer-text', { rows: 1, placeholder: say('composer.placeholder'), 'aria-label': say('composer.label'), dir: 'auto', id: 'composer', on: {
      input: () => this.#changed(), keydown: (event) => this.#key(event), paste: (event) => this.#paste(event),
    } });
    this.strip = el('div.composer-strip', { hidden: true });
    this.queue = el('div.composer-queue', { hidden: true, 'aria-live': 'polite' });
    this.prefix = el('input.prefix-text', { type: 'text', placeholder: say('prefix.placeholder'), 'aria-label': say('prefix.label'), on: { input: () => chat.setPrefix(this.prefix.value) } });
    this.prefixRow = el('div.prefix-row', { hidden: true }, el('span', { 'aria-hidden': 'true' }, say('prefix.label')), this.prefix);
    this.gauge = el('div.gauge-text', { role: 'status', 'aria-label': say('gauge.label') });
    this.gaugeBar = el('span.context-fill');
    this.sendButton = button({ label: say('send'), icon: 'send', variant: 'send', 'aria-describedby': 'composer-full', onClick: () => this.#press() });
    this.fullWords = el('span');
    this.moveOn = button({ label: say('full.moveOn'), variant: 'plain', onClick: () => this.onMoveOn?.({ text: this.area.value, attachments: this.attachments }) });
    this.fullNote = el('div.composer-full', { id: 'composer-full', role: 'status', hidden: true }, this.fullWords, this.moveOn);
    this.node = el('form.composer', { 'aria-label': say('composer.form'), on: {
      submit: (event) => { event.preventDefault(); this.#press(); },
      dragover: (event) => event.preventDefault(),
      drop: (event) => { event.preventDefault(); this.addFiles([...event.dataTransfer.files]); },
    } }, this.queue, this.fullNote, el('div.composer-box', null, this.strip, this.prefixRow, this.area, el('div.composer-tools', null,
      button({ label: say('attach'), icon: 'attach', onClick: async () => this.addFiles(await chooseFiles(acceptedFiles({ images: hasCapability(currentModel.value, 'vision') }), true)) }),
      button({ label: say('prefix.toggle'), icon: 'forward', onClick: () => this.togglePrefix() }),
      el('div.composer-meter', null, el('span.context-bar', { 'aria-hidden': 'true' }, this.gaugeBar), this.gauge), this.sendButton)));
    answersRunning.watch(() => this.refresh());
    currentModel.watch(() => this.#count());
    connection.watch(() => this.refresh());
  }

  /** Shows the draft of the conversation that is now open. */
  open() {
    this.area.value = drafts.read(this.#draftName());
    this.attachments = [];
    this.#measureNumber += 1;
    this.#drawFull(null);
    this.prefix.value = this.chat.record.prefix ?? '';
    this.prefixRow.hidden = !this.prefix.value;
    this.#grow();
    this.#drawStrip();
    this.refresh();
    this.#count();
  }

  /** Conversations that have not begun share one draft: after a reload they have other names. */
  #draftName() {
    return this.chat.tree.nodes.size ? this.chat.record.id : 'new';
  }

  refresh() {
    const running = this.chat.running();
    const writing = this.#writing();
    relabel(this.sendButton, running && !writing ? say('stop') : running ? say('send.queue') : say('send'), running && !writing ? 'stop' : 'send');
    this.sendButton.classList.toggle('stopping', Boolean(running) && !writing);
    this.sendButton.disabled = (!running && !writing) || this.chat.readOnly || (this.#full && writing);
    this.area.disabled = this.chat.readOnly;
    this.#drawQueue();
  }

  #press() {
    if (this.#writing()) this.#send();
    else this.chat.stop();
  }

  #writing() {
    return this.area.value.trim() !== '' || this.attachments.length > 0;
  }

  #send() {
    if (this.chat.readOnly || this.#full) return;
    const text = this.area.value;
    const attachments = this.attachments;
    this.area.value = '';
    this.attachments = [];
    drafts.write(this.#draftName(), '');
    this.#grow();
    this.#drawStrip();
    this.chat.send(text, attachments);
    this.refresh();
  }

  /** Text from elsewhere (an example, a link) fills the box; it never sends. */
  fillText(text, attachments = this.attachments) {
    this.area.value = text;
    this.attachments = attachments;
    this.#drawStrip();
    this.#changed();
    this.area.focus();
  }

  #changed() {
    drafts.write(this.#draftName(), this.area.value);
    this.#grow();
    this.refresh();
    this.#count();
  }

  /** For browsers without `field-sizing`. */
  #grow() {
    if (CSS.supports('field-sizing', 'content')) return;
    this.area.style.setProperty('height', 'auto');
    this.area.style.setProperty('height', `${Math.min(320, this.area.scrollHeight)}px`);
  }

  #key(event) {
    // Never while an input method composes a character.
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === 'Enter') {
      const wantsSend = event.ctrlKey || event.metaKey || (settings.value.enterSends && !isTouch() ? !event.shiftKey : false);
      if (wantsSend) {
        event.preventDefault();
        if (this.#writing()) this.#send();
      }
    } else if (event.key === 'ArrowUp' && this.area.value === '') {
      if (this.chat.editLastOwn()) event.preventDefault();
    }
  }

  async #paste(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length) {
      event.preventDefault();
      await this.addFiles(files);
      return;
    }
    const text = event.clipboardData?.getData('text/plain') ?? '';
    if (text.length <= PASTE_CHARS_MAX) return;
    event.preventDefault();
    const attachment = { kind: 'text', name: say('paste.name', { n: this.attachments.length + 1 }), text };
    this.attachments.push(attachment);
    this.#drawStrip();
    this.#changed();
    toast(say('paste.attached', { n: formatCount(text.length) }), { action: [say('paste.inline'), () => {
      this.attachments = this.attachments.filter((a) => a !== attachment);
      this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, 'end');
      this.#drawStrip();
      this.#changed();
    }] });
  }

  async addFiles(files) {
    for (const file of files) {
      try {
        if (tooManyImages(this.attachments)) throw new Error(say('attach.tooMany'));
        this.attachments.push(await readAttachmentFile(file, { images: hasCapability(currentModel.value, 'vision') }));
      } catch (error) {
        showError(error);
      }
    }
    this.#drawStrip();
    this.refresh();
    this.#count();
  }

  #drawStrip() {
    this.strip.hidden = this.attachments.length === 0;
    fill(this.strip, this.attachments.map((item) => el('span.chip', null,
      item.kind === 'image' ? el('img', { src: item.url, alt: '' }) : null, el('span', null, item.name || say('attach.image')),
      button({ label: say('attach.remove', { name: item.name }), icon: 'close', onClick: () => {
        this.attachments = this.attachments.filter((other) => other !== item);
        this.#drawStrip();
        this.refresh();
      } }))));
  }

  #drawQueue() {
    const waiting = this.chat.queue ?? [];
    this.queue.hidden = waiting.length === 0;
    fill(this.queue, waiting.map((item) => el('span.chip', null, el('span', null, say('queue.item', { text: item.text.slice(0, 60) })),
      button({ label: say('queue.cancel'), icon: 'close', onClick: () => this.chat.unqueue(item) }))));
  }

  togglePrefix() {
    this.prefixRow.hidden = !this.prefixRow.hidden;
    if (this.prefixRow.hidden) {
      this.prefix.value = '';
      this.chat.setPrefix('');
    } else this.prefix.focus();
  }

  /** Asks the server how many tokens the conversation with this draft takes. */
  async #measure() {
    const max = contextTokens(currentModel.value);
    if (!max || connection.value.state !== 'ok') return this.#drawGauge(null, max);
    const number = ++this.#measureNumber;
    try {
      const draft = this.#writing() ? { content: this.area.value, attachments: this.attachments } : null;
      const total = await this.chat.countTokens(draft);
      const own = draft ? (await postJson('v1/token/encode', { text: countedMessage({ role: 'user', ...draft }).content, add_bos_token: false })).length : 0;
      if (number === this.#measureNumber) this.#drawGauge({ total, own }, max);
    } catch {
      if (number === this.#measureNumber) this.#drawGauge(null, max);
    }
    return undefined;
  }

  recount() {
    this.#count();
  }

  /** Says why nothing can be sent, and what to do. An answer needs room for one token at least. */
  #drawFull(used, max) {
    this.#full = Boolean(used) && used.total >= max;
    const alone = this.#full && used.own >= max;
    this.fullNote.hidden = !this.#full;
    this.moveOn.hidden = alone;
    if (this.#full) setText(this.fullWords, say(alone ? 'full.message' : 'full.conversation', { used: formatCompact(used.total), max: formatCompact(max) }));
    this.refresh();
  }

  #drawGauge(used, max) {
    this.#drawFull(used, max);
    if (!max) return setText(this.gauge, '');
    const share = used ? used.total / max : 0;
    const level = share >= 0.95 ? 'full' : share >= 0.8 ? 'high' : 'fine';
    this.node.dataset.context = level;
    this.gaugeBar.style.setProperty('width', `${Math.min(100, share * 100)}%`);
    const text = used ? say(level === 'fine' ? 'gauge.used' : level === 'high' ? 'gauge.high' : share >= 1 ? 'gauge.over' : 'gauge.full', { used: formatCompact(used.total), max: formatCompact(max), p: formatPercent(share) }) : say('gauge.max', { max: formatCompact(max) });
    setText(this.gauge, text);
    setAttribute(this.gauge, 'title', used ? say('gauge.title', { own: formatCount(used.own), used: formatCount(used.total), max: formatCount(max) }) : null);
    return undefined;
  }
}
