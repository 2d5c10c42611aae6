// One answer being written: the request, its states, stopping, resuming, saving. Runs on when its
// conversation is not shown. States: queued → loading → reading → thinking → answering → done.

import { Cell } from '../page/cell.js';
import { ApiError, readEvents, send } from '../net/api.js';
import { foldChunk, newAnswer } from '../net/answer_fold.js';
import { saveConversation, saveNodes } from '../data/conversation_store.js';

/** Between two saves of a running answer. */
const SAVE_MS = 1000;

/** Running answers by message id. */
export const answersRunning = new Cell(new Map());

export const runOf = (nodeId) => answersRunning.value.get(nodeId) ?? null;

export function runOfConversation(id) {
  return [...answersRunning.value.values()].find((run) => run.node.conversation === id) ?? null;
}

export class AnswerRun {
  /** `{phase, progress, queuePosition, startedAt_ms, firstAt_ms}` for the screen. */
  state = new Cell({ phase: 'sent', progress: null, queuePosition: null });

  /** `before`: text the node already has, which the stream's text is appended to. */
  constructor(record, node, { before = '', thoughtBefore = '' } = {}) {
    this.record = record;
    this.node = node;
    this.answer = newAnswer();
    this.abort = new AbortController();
    this.stopped = false;
    this.before = before;
    this.thoughtBefore = thoughtBefore;
    this.startedAt_ms = performance.now();
    this.thinkingFrom_ms = null;
    this.listeners = new Set();
    this.finished = new Promise((resolve) => { this.resolveFinished = resolve; });
  }

  onChange(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Sends a new request and follows it to its end. Never rejects: errors end in the message. */
  async start(body) {
    this.node.stream = { id: this.node.id, bytes: 0 };
    await this.#follow(() => send('POST', 'v1/chat/completions', { body, signal: this.abort.signal, headers: { 'X-Conversation-Id': this.node.id } }), 0);
  }

  /** Takes up a stream that a reload or a broken connection interrupted. */
  async resume() {
    const { id, bytes } = this.node.stream;
    await this.#follow(() => send('GET', `v1/stream?conv_id=${encodeURIComponent(id)}&from=${bytes}`, { signal: this.abort.signal }), bytes);
  }

  async #follow(open, from) {
    answersRunning.value.set(this.node.id, this);
    answersRunning.notify();
    let timer = 0;
    try {
      const response = await open();
      const ignored = response.headers.get('x-ignored-fields');
      if (ignored) this.node.warnings = ignored.split(',').map((name) => name.trim());
      timer = setInterval(() => saveNodes(this.node).catch(() => {}), SAVE_MS);
      const complete = await readEvents(response, (chunk, consumed) => this.#take(chunk, consumed), { from });
      if (!complete && !this.answer.finish && !this.stopped) throw new ApiError('the connection broke', { code: 'broken' });
    } catch (error) {
      if (!this.stopped && error.name !== 'AbortError') this.node.error = describeError(error);
      this.broken = error instanceof ApiError && (error.code === 'broken' || (error.code === 'unreachable' && this.node.stream.bytes > 0));
    } finally {
      clearInterval(timer);
      await this.#finish();
    }
  }

  #take(chunk, consumed) {
    const { answer, node } = this;
    foldChunk(answer, chunk);
    const now_ms = performance.now();
    if (answer.deltas && !this.firstAt_ms) this.firstAt_ms = now_ms;
    if (answer.reasoning && !this.thinkingFrom_ms) this.thinkingFrom_ms = now_ms;
    if (this.thinkingFrom_ms && !this.thoughtFor_ms && answer.content) this.thoughtFor_ms = now_ms - this.thinkingFrom_ms;
    node.content = this.before + answer.content;
    node.reasoning = this.thoughtBefore + answer.reasoning;
    node.toolCalls = answer.toolCalls;
    node.stream.bytes = consumed;
    this.state.value = { phase: phaseOf(answer), progress: answer.progress, queuePosition: answer.queuePosition };
    for (const listener of this.listeners) listener();
  }

  /** Keeps what is there; the server forgets the request. */
  stop() {
    if (this.stopped) return;
    this.stopped = true;
    send('DELETE', `v1/stream?conv_id=${encodeURIComponent(this.node.id)}`).catch(() => {});
    this.abort.abort();
  }

  async #finish() {
    const { node, answer } = this;
    Object.assign(node, {
      model: answer.model ?? node.model, adapter: answer.adapter, fingerprint: answer.fingerprint, seed: answer.seed, usage: answer.usage,
      finish: this.stopped ? 'stopped' : answer.finish, eosReason: answer.eosReason, stopText: answer.stopText,
      timing: { first_s: this.firstAt_ms ? (this.firstAt_ms - this.startedAt_ms) / 1000 : null, total_s: (performance.now() - this.startedAt_ms) / 1000, thought_s: this.thoughtFor_ms ? this.thoughtFor_ms / 1000 : null },
    });
    // A broken stream may still run on the server: keep what resuming needs.
    if (!this.broken) node.stream = null;
    answersRunning.value.delete(node.id);
    this.state.value = { ...this.state.value, phase: 'done' };
    for (const listener of this.listeners) listener();
    answersRunning.notify();
    await saveNodes(node).catch(() => {});
    await saveConversation(this.record).catch(() => {});
    this.resolveFinished();
  }
}

function phaseOf(answer) {
  if (answer.content || answer.toolCalls.length) return 'answering';
  if (answer.reasoning) return 'thinking';
  if (answer.progress?.processed > 0) return 'reading';
  if (answer.queuePosition) return 'queued';
  if (answer.progress?.total > 0) return 'reading';
  return 'sent';
}

/** What a message keeps of an error. */
export function describeError(error) {
  return { message: error.message ?? String(error), code: error.code ?? '', param: error.param ?? null };
}
