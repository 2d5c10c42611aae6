// Folds the chunks of a streamed chat answer into one value. Pure: what the page shows of an answer is a
// function of the chunks, however they were cut. Texts are only ever appended to.

export function newAnswer() {
  return {
    content: '',
    reasoning: '',
    toolCalls: [],
    logprobs: [],
    model: null,
    adapter: null,
    fingerprint: null,
    seed: null,
    requestId: null,
    finish: null,
    eosReason: null,
    stopText: null,
    usage: null,
    /** `{total, cached, processed, time_ms}` while the prompt is read. */
    progress: null,
    queuePosition: null,
    /** Number of chunks with text: a cheap "has the answer begun". */
    deltas: 0,
  };
}

/** Takes one parsed chunk of `/v1/chat/completions`; only choice `index` is looked at. */
export function foldChunk(answer, chunk, index = 0) {
  if (chunk.id) answer.requestId = chunk.id;
  if (chunk.model) answer.model = chunk.model;
  if (chunk.adapter) answer.adapter = chunk.adapter;
  if (chunk.system_fingerprint) answer.fingerprint = chunk.system_fingerprint;
  if (chunk.seed !== undefined && chunk.seed !== null) answer.seed = chunk.seed;
  if (chunk.usage) answer.usage = chunk.usage;
  if (typeof chunk.queue_position === 'number') answer.queuePosition = chunk.queue_position;
  if (chunk.prompt_progress) {
    answer.progress = foldProgress(chunk.prompt_progress);
    answer.queuePosition = chunk.prompt_progress.queue_position ?? answer.queuePosition;
  }
  for (const choice of chunk.choices ?? []) {
    if ((choice.index ?? 0) === index) foldChoice(answer, choice);
  }
  return answer;
}

function foldProgress(p) {
  return { total: p.total ?? 0, cached: p.cache ?? 0, processed: p.processed ?? 0, time_ms: p.time_ms ?? 0 };
}

function foldChoice(answer, choice) {
  const delta = choice.delta ?? {};
  // Completions carry `text`, chat carries a delta; both end in `content`.
  const text = typeof choice.text === 'string' ? choice.text : delta.content;
  const thought = delta.reasoning_content ?? delta.reasoning;
  if (typeof text === 'string' && text) {
    answer.content += text;
    answer.deltas++;
  }
  if (typeof thought === 'string' && thought) {
    answer.reasoning += thought;
    answer.deltas++;
  }
  for (const call of delta.tool_calls ?? []) {
    foldToolCall(answer.toolCalls, call);
    answer.deltas++;
  }
  if (choice.logprobs) answer.logprobs.push(...readLogprobs(choice.logprobs));
  if (choice.finish_reason) answer.finish = choice.finish_reason;
  if (choice.eos_reason) answer.eosReason = choice.eos_reason;
  if (choice.stop_str) answer.stopText = choice.stop_str;
}

/** The first fragment of a call brings id and name, later ones only text to append to its arguments. */
function foldToolCall(calls, fragment) {
  const index = Number.isInteger(fragment.index) && fragment.index >= 0 && fragment.index < 1024 ? fragment.index : 0;
  while (calls.length <= index) calls.push({ id: '', name: '', arguments: '' });
  const call = calls[index];
  if (fragment.id) call.id = fragment.id;
  if (fragment.function?.name) call.name = fragment.function.name;
  if (typeof fragment.function?.arguments === 'string') call.arguments += fragment.function.arguments;
}

/** Both shapes of log-probabilities as `{text, id, logprob, offset, top: [{text, id, logprob}]}`. */
export function readLogprobs(logprobs) {
  if (Array.isArray(logprobs.content)) {
    return logprobs.content.map((entry) => ({
      text: entry.token,
      id: entry.token_id ?? null,
      logprob: entry.logprob,
      offset: null,
      top: (entry.top_logprobs ?? []).map((t) => ({ text: t.token, id: t.token_id ?? null, logprob: t.logprob })),
    }));
  }
  const tokens = logprobs.tokens ?? [];
  return tokens.map((text, i) => ({
    text,
    id: logprobs.token_ids?.[i] ?? null,
    logprob: logprobs.token_logprobs?.[i] ?? null,
    offset: logprobs.text_offset?.[i] ?? null,
    top: Object.entries(logprobs.top_logprobs?.[i] ?? {})
      .map(([t, logprob]) => ({ text: t, id: null, logprob }))
      .sort((a, b) => b.logprob - a.logprob),
  }));
}
