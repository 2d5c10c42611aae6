// The open conversation and everything that can be done to it. Knows the tree, the store and the runs;
// the views ask it, and it tells them to show. Nothing is destroyed by regenerating or editing.

import { copyText } from '../page/clipboard.js';
import { Cell } from '../page/cell.js';
import { settings } from '../page/settings.js';
import { UNDO_MS, showError, toast } from '../page/toast.js';
import { say } from '../page/words.js';
import { getJson, postJson } from '../net/api.js';
import { connection, currentModel } from '../net/connection.js';
import { appendNode, copyConversation, dropNodes, newConversation, newNode, openTree, saveConversation, saveNodes } from '../data/conversation_store.js';
import { presetsOf } from '../data/preset_store.js';
import { acquireLock } from '../data/tab_lock.js';
import { activePath, pathTo, removeOnly, removeSubtree, restoreOnly, restoreSubtree, showSibling } from '../data/tree.js';
import { AnswerRun, runOf, runOfConversation } from './answer_run.js';
import { chatBody, countBody, wireMessage } from './chat_request.js';

export class Chat {
  /** Messages that wait for the running answer, of the open conversation. */
  queue = [];
  readOnly = false;
  /** Told after the open conversation or its messages changed: `'opened'`, `'messages'`, `'lock'`. */
  changed = new Cell(null);
  #queues = new Map();
  #release = null;

  constructor() {
    this.record = newConversation();
    this.tree = { nodes: new Map(), children: new Map(), active: {} };
  }

  #tell(what) {
    this.changed.value = what;
    this.changed.value = null;
  }

  /** Opens a conversation; takes its lock if no other tab has it. */
  async open(record, { steal = false } = {}) {
    if (record === this.record && this.#release && !this.readOnly) return this.#tell('opened');
    await this.#release?.();
    this.#release = null;
    this.#queues.set(this.record.id, this.queue);
    this.record = record;
    this.queue = this.#queues.get(record.id) ?? [];
    this.tree = await openTree(record);
    this.readOnly = false;
    const release = await acquireLock(record.id, { steal, onLost: () => { if (this.record === record) { this.readOnly = true; this.#tell('lock'); } } });
    if (this.record !== record) return release?.();
    this.#release = release;
    this.readOnly = release === null;
    this.#tell('opened');
    this.resumeBroken();
    return undefined;
  }

  /** Another tab changed the messages: read them again. */
  async reread() {
    this.tree = await openTree(this.record);
    this.#tell('messages');
  }

  /** Answers that a reload or a crash cut off go on where they were, once the server knows us. */
  resumeBroken() {
    if (this.readOnly || connection.value.state !== 'ok') return;
    for (const node of activePath(this.tree)) if (node.stream && !runOf(node.id) && !node.error) this.resume(node);
  }

  running() {
    return runOfConversation(this.record.id);
  }

  stop() {
    this.running()?.stop();
  }

  setPrefix(text) {
    this.record.prefix = text;
    if (this.tree.nodes.size) saveConversation(this.record, { touch: false });
  }

  /** Adds the person's message and answers it; waits its turn while an answer runs or a model loads. */
  async send(text, attachments = []) {
    if (this.running() || !currentModel.value) {
      if (!this.running() && connection.value.state === 'ok' && !modelIsComing()) toast(say('send.noModel'), { tone: 'error' });
      this.queue.push({ text, attachments });
      this.#tell('queue');
      return;
    }
    const parent = activePath(this.tree).at(-1)?.id ?? null;
    const question = newNode(this.record, parent, 'user', { content: text, attachments });
    await appendNode(this.record, this.tree, question);
    await this.answer(question);
  }

  unqueue(item) {
    this.queue = this.queue.filter((other) => other !== item);
    this.#tell('queue');
  }

  /** Sends what waited, when nothing runs any more. */
  async sendQueued() {
    if (this.queue.length === 0 || this.running() || !currentModel.value || this.readOnly) return;
    const item = this.queue.shift();
    this.#tell('queue');
    await this.send(item.text, item.attachments);
  }

  /** Writes a new answer below `question`. */
  async answer(question, { samplers = this.record.samplers, model = null } = {}) {
    const prefix = this.record.prefix ?? '';
    const node = newNode(this.record, question.id, 'assistant', { model: model ?? currentModel.value?.id ?? null, samplers: { ...samplers }, content: prefix });
    const body = chatBody({ path: pathTo(this.tree, question.id), system: this.record.system, samplers, prefix, model });
    await this.#run(node, body, { before: prefix, fresh: true, question });
  }

  /** `fresh`: the node is new and goes into the tree. The run is known before the screen draws the node. */
  async #run(node, body, { before, thoughtBefore = '', fresh = false, question = null }) {
    const run = new AnswerRun(this.record, node, { before, thoughtBefore });
    const { record } = this;
    const started = run.start(body);
    if (fresh) await appendNode(record, this.tree, node);
    this.#tell('messages');
    if (question && this.record === record) this.asked?.(question, node);
    await started;
    if (this.record === record) this.#tell('finished');
    if (settings.value.modelTitles && fresh && this.record === record) this.#makeTitle(record);
    await this.sendQueued();
  }

  async regenerate(node, options = {}) {
    const question = node.role === 'user' ? node : this.tree.nodes.get(node.parent);
    if (!question || this.readOnly || this.running()) return;
    await this.answer(question, options);
  }

  /** Menu items for regenerating with other settings. */
  regenerateChoices(node) {
    const samplers = presetsOf('samplers').map((preset) => ({ label: say('regenerate.with', { name: preset.name }), icon: 'redo', run: () => this.regenerate(node, { samplers: preset.values }) }));
    const other = currentModel.value && node.model && node.model !== currentModel.value.id ? [{ label: say('regenerate.with', { name: currentModel.value.id }), icon: 'redo', run: () => this.regenerate(node) }] : [];
    return [...other, ...samplers];
  }

  /** Goes on with an answer where it ended, also inside its reasoning. */
  async continueFrom(node) {
    if (this.readOnly || this.running()) return;
    const body = chatBody({ path: pathTo(this.tree, node.id), system: this.record.system, samplers: this.record.samplers, continues: true });
    Object.assign(node, { error: null, finish: null, eosReason: null });
    await this.#run(node, body, { before: node.content, thoughtBefore: node.reasoning });
  }

  async resume(node) {
    if (!node.stream || runOf(node.id)) return;
    node.error = null;
    const run = new AnswerRun(this.record, node, { before: node.content, thoughtBefore: node.reasoning });
    const started = run.resume();
    this.#tell('messages');
    await started;
    // Gone on the server: what was saved stays, and can be continued.
    if (node.error && !run.broken) Object.assign(node, { stream: null, error: null, finish: 'stopped' });
    await saveNodes(node);
    this.#tell('finished');
  }

  /** `then`: 'save' changes the text in place; 'answer' and 'continue' make a new branch. */
  async saveEdit(node, text, then) {
    if (then === 'save') {
      // How the answer ended is not how this text ends.
      Object.assign(node, { content: text, finish: null, eosReason: null });
      await saveNodes(node);
      this.#tell('messages');
      this.edited?.(node);
      return;
    }
    const copy = newNode(this.record, node.parent, node.role, { content: text, attachments: node.attachments, model: node.model, reasoning: then === 'continue' ? node.reasoning : '' });
    await appendNode(this.record, this.tree, copy);
    this.#tell('messages');
    if (then === 'answer') await this.answer(copy);
    else await this.continueFrom(copy);
  }

  async branch(node) {
    const copy = await copyConversation(this.record, node.id);
    toast(say('branch.done'));
    this.opened?.(copy);
  }

  sibling(node, step) {
    const shown = showSibling(this.tree, node.id, step);
    if (!shown) return;
    saveConversation(this.record, { touch: false });
    this.#tell('messages');
    this.focusMessage?.(shown);
  }

  /** Takes a message out, alone or with all that follows; the bin is emptied when undo is over. */
  async remove(node, andFollowing) {
    if (this.readOnly) return;
    const { tree, record } = this;
    runOf(node.id)?.stop();
    const removed = andFollowing ? removeSubtree(tree, node.id) : removeOnly(tree, node.id);
    const dropped = andFollowing ? removed : [removed.node];
    if (!andFollowing) await saveNodes(...removed.moved.map((id) => tree.nodes.get(id)));
    await saveConversation(record);
    this.#tell('messages');
    toast(say('deleted.messages', { n: dropped.length }), {
      ms: UNDO_MS,
      action: [say('undo'), async () => {
        if (andFollowing) restoreSubtree(tree, removed);
        else {
          restoreOnly(tree, removed);
          await saveNodes(...removed.moved.map((id) => tree.nodes.get(id)));
        }
        await saveConversation(record);
        this.#tell('messages');
      }],
      onGone: () => dropNodes(dropped),
    });
  }

  async copy(node) {
    if (await copyText(node.content)) toast(say('copied'), { ms: 1500 });
  }

  reuseSeed(seed) {
    this.setSamplers({ ...this.record.samplers, seed });
    toast(say('seed.reused', { n: String(seed) }));
  }

  setSamplers(values) {
    this.record.samplers = values;
    if (this.tree.nodes.size) saveConversation(this.record, { touch: false });
    this.#tell('samplers');
  }

  setSystem(text) {
    this.record.system = text;
    if (this.tree.nodes.size) saveConversation(this.record, { touch: false });
  }

  /** Tokens of the conversation with a draft (`{content, attachments}` or null), as the template writes it. */
  async countTokens(draft) {
    const body = countBody({ path: activePath(this.tree), system: this.record.system, prefix: this.record.prefix, draft });
    return (await postJson('v1/token/encode', body)).length;
  }

  async tokensOf(node) {
    try {
      return await postJson('v1/token/encode', { text: node.content, add_bos_token: false, with_pieces: true });
    } catch (error) {
      showError(error);
      return null;
    }
  }

  /** A short title written by the model; off by default. */
  async #makeTitle(record) {
    const path = activePath(this.tree);
    if (path.length !== 2 || !path[1].content) return;
    try {
      const messages = [...path.map(wireMessage), { role: 'user', content: say('title.prompt') }];
      const reply = await postJson('v1/chat/completions', { messages, max_tokens: 24, temperature: 0, enable_thinking: false });
      const title = reply.choices?.[0]?.message?.content?.trim().replace(/^["'#\s]+|["'.\s]+$/g, '').split('\n')[0];
      if (title) await saveConversation(Object.assign(record, { title: title.slice(0, 80) }), { touch: false });
    } catch {
      // The first line stays the title.
    }
  }

  editLastOwn() {
    const last = activePath(this.tree).filter((node) => node.role === 'user').at(-1);
    if (!last || this.running() || this.readOnly) return false;
    this.editMessage?.(last);
    return true;
  }
}

/** Whether the server says that a model is being loaded. */
let modelComing = false;
export const setModelComing = (coming) => { modelComing = coming; };
const modelIsComing = () => modelComing;

/** The models the server offers, for menus. */
export const listModels = async () => (await getJson('v1/model/list')).data ?? [];
