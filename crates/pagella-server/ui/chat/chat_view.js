// The chat view: list, transcript and composer, sampler panel. Wires the open conversation to them.

import { el, fill } from '../page/element.js';
import { button } from '../page/controls.js';
import { formatCompact } from '../page/format.js';
import { say } from '../page/words.js';
import { connection, contextTokens, currentModel } from '../net/connection.js';
import { conversationById, conversationReplaced, conversations, newConversation, treeChangedElsewhere } from '../data/conversation_store.js';
import { activePath, showNode } from '../data/tree.js';
import { SamplerPanel } from '../sampler/sampler_panel.js';
import { runOf } from './answer_run.js';
import { Chat } from './chat.js';
import { chatBody } from './chat_request.js';
import { openCompare } from './compare.js';
import { Composer } from './composer.js';
import { conversationList } from './conversation_list.js';
import { openOutline } from './outline.js';
import { SystemBlock } from './system_block.js';
import { Transcript } from './transcript.js';

/** Models of this size know little; the one that comes with the program knows the documentation of the web. */
const SMALL_MODEL_BYTES = 64 * 1024 * 1024;
const examplesFor = (model) => [1, 2, 3].map((n) => (model?.size_bytes < SMALL_MODEL_BYTES ? say(`example.small.${n}`) : say(`example.${n}`)));
const scrollKey = (id) => `pagella.scroll.${id}`;

/** `go(path)` changes the address; the view follows it through `open`. */
export function chatView({ go }) {
  const chat = new Chat();
  const transcript = new Transcript(chat);
  chat.grew = () => transcript.grew();
  const composer = new Composer(chat);
  const system = new SystemBlock(chat, () => composer.recount());
  const panel = new SamplerPanel({ route: 'chat', onChange: (values) => chat.setSamplers(values), requestBody: () => chatBody({ path: activePath(chat.tree), system: chat.record.system }) });
  const list = conversationList({ openId: () => chat.record.id, onOpen: (record) => go(`chat/${record.id}`), onNew: () => startNew() });
  const empty = el('div.empty-chat');
  const lockBar = el('div.lock-bar', { role: 'status', hidden: true }, el('span', null, say('lock.elsewhere')), button({ label: say('lock.take'), variant: 'plain', onClick: () => chat.open(chat.record, { steal: true }) }));
  transcript.top.append(system.node, empty);

  const main = el('section.chat', { 'aria-label': say('view.chat') }, lockBar, transcript.node, composer.node);

  function drawEmpty() {
    empty.hidden = chat.tree.nodes.size > 0;
    const model = currentModel.value;
    if (!model && connection.value.state !== 'ok') return fill(empty);
    return fill(empty, el('p.empty-model', null, model ? model.id : say('model.none')),
      model ? el('p.empty-note', null, say('empty.context', { n: formatCompact(contextTokens(model)) })) : null,
      el('div.examples', null, examplesFor(model).map((text) => el('button.example', { type: 'button', on: { click: () => composer.fillText(text) } }, text))));
  }

  chat.changed.watch((what) => {
    if (what === null) return;
    if (what === 'opened') openAll();
    else if (what === 'messages') { showMessages(); showAddress(); }
    else if (what === 'samplers') panel.open(chat.record.samplers);
    else if (what === 'lock') { showLock(); showMessages(); }
    if (what === 'finished') composer.recount();
    composer.refresh();
  });

  function openAll() {
    transcript.clear();
    system.open();
    panel.open(chat.record.samplers);
    composer.open();
    drawEmpty();
    showLock();
    transcript.show({ toEnd: true });
    restoreScroll();
    attachRuns();
    list.draw();
  }

  function showMessages() {
    drawEmpty();
    transcript.show();
    for (const view of transcript.views.values()) if (view.drawn && !view.editing && !runOf(view.model.id)) view.refresh();
    attachRuns();
    composer.recount();
  }

  /** Views of running answers follow them; a view that was drawn before its run began is told here. */
  function attachRuns() {
    for (const view of transcript.views.values()) {
      const run = runOf(view.model.id);
      if (run && view.drawn && view.attachedTo !== run) { view.attachedTo = run; view.refresh(); view.attach(run); }
    }
  }

  /** A conversation that has just begun gets its own address, so that a reload finds it. */
  function showAddress() {
    if (main.isConnected && chat.tree.nodes.size && location.hash !== `#/chat/${chat.record.id}`) history.replaceState(null, '', `#/chat/${chat.record.id}`);
    document.title = `${chat.record.title || say('view.chat')} · Pagella`;
  }

  function showLock() {
    lockBar.hidden = !chat.readOnly;
  }

  function restoreScroll() {
    const saved = sessionStorage.getItem(scrollKey(chat.record.id));
    if (saved === null) return;
    transcript.follow.moveTo(Number(saved));
    transcript.follow.active.value = transcript.follow.below_px() <= 40;
  }
  /** Kept when the conversation, the view or the page is left; following the end is no place. */
  function keepScroll() {
    if (!main.isConnected) return;
    if (!transcript.follow.active.value) sessionStorage.setItem(scrollKey(chat.record.id), String(transcript.scroller.scrollTop));
    else sessionStorage.removeItem(scrollKey(chat.record.id));
  }
  addEventListener('pagehide', keepScroll);

  chat.asked = (question) => transcript.showQuestion(question.id);
  chat.opened = (record) => go(`chat/${record.id}`);
  chat.edited = (node) => transcript.views.get(node.id)?.refresh();
  chat.editMessage = (node) => transcript.views.get(node.id)?.edit();
  chat.focusMessage = (id) => transcript.views.get(id)?.node.focus({ preventScroll: true });
  chat.compare = (node) => openCompare(chat, node.role === 'user' ? node : chat.tree.nodes.get(node.parent) ?? node, () => showMessages());

  currentModel.watch(() => { drawEmpty(); chat.sendQueued(); });
  connection.watch(({ state }) => { if (state === 'ok') { if (!currentModel.value) drawEmpty(); chat.resumeBroken(); } }, { now: false });
  conversations.watch(() => { const mine = conversationById(chat.record.id); if (mine?.deleted) go('chat'); }, { now: false });
  conversationReplaced.watch(async (id) => {
    if (id !== chat.record.id) return;
    await chat.reread();
    panel.open(chat.record.samplers);
    if (document.activeElement !== system.area) system.open();
  }, { now: false });
  treeChangedElsewhere.watch((id) => { if (id === chat.record.id && chat.readOnly) chat.reread(); }, { now: false });

  async function startNew(fields = {}) {
    keepScroll();
    await chat.open(newConversation(fields));
    go('chat');
    composer.area.focus();
  }

  /** The way out of a full context: a new conversation with the same instructions, settings and unsent words. */
  async function moveOn({ text = '', attachments = [] } = {}) {
    const { system: instructions, samplers } = chat.record;
    composer.fillText('', []);
    await startNew({ system: instructions, samplers: { ...samplers } });
    composer.fillText(text, attachments);
  }
  composer.onMoveOn = moveOn;
  chat.moveOn = moveOn;

  /** Message keys: only while the focus is in the transcript, and never while writing. */
  transcript.scroller.addEventListener('keydown', (event) => {
    if (event.target.closest('textarea, input, select, button, a, summary, pre') && !event.target.matches('.message')) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const view = transcript.focusedView();
    const keys = { j: () => transcript.moveFocus(1), ArrowDown: () => transcript.moveFocus(1), k: () => transcript.moveFocus(-1), ArrowUp: () => transcript.moveFocus(-1), ArrowLeft: () => view && chat.sibling(view.model, -1), ArrowRight: () => view && chat.sibling(view.model, 1) };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  /** The message that a shortcut means: the focused one, else the last of the role. */
  const target = (role) => transcript.focusedView() ?? transcript.lastView(role);

  return {
    title: () => chat.record.title || say('view.chat'), list: list.node, main, side: panel.node, chat, composer, panel,
    async open(id) {
      if (id === chat.record.id && (chat.tree.nodes.size || !id)) return;
      if (chat.tree.nodes.size) keepScroll();
      const record = id ? conversationById(id) : null;
      if (record && !record.deleted) await chat.open(record);
      else if (!id && chat.tree.nodes.size === 0) await chat.open(chat.record);
      else await chat.open(newConversation());
    },
    address: () => (chat.tree.nodes.size ? `chat/${chat.record.id}` : 'chat'),
    hidden: keepScroll,
    /** Back on the page: nodes that left it forgot how far they were scrolled. */
    back() {
      if (transcript.follow.active.value) transcript.follow.jump();
      else restoreScroll();
    },
    shown() {
      if (!matchMedia('(pointer: coarse)').matches) composer.area.focus();
    },
    commands: {
      newChat: () => startNew(), stop: () => chat.stop(),
      regenerate: () => { const view = target('assistant'); if (view) chat.regenerate(view.model); },
      continue: () => { const view = target('assistant'); if (view?.model.role === 'assistant') chat.continueFrom(view.model); },
      edit: () => target('user')?.edit(),
      branch: () => { const view = target(); if (view) chat.branch(view.model); },
      outline: () => openOutline(chat.tree, (nodeId) => { showNode(chat.tree, nodeId); showMessages(); transcript.views.get(nodeId)?.node.scrollIntoView({ block: 'center' }); }),
      compare: () => { const view = transcript.lastView('user'); if (view) chat.compare(view.model); },
      system: () => { system.node.open = true; system.area.focus(); },
      prefix: () => composer.togglePrefix(),
      jump: () => transcript.follow.jump(),
      focusTranscript: () => transcript.moveFocus(0),
    },
  };
}
