// The event reader at every split, its byte count for resuming, and the fold of answer chunks.

import test from 'node:test';
import assert from 'node:assert/strict';
import { EventStreamReader } from '../net/event_stream.js';
import { foldChunk, newAnswer, readLogprobs } from '../net/answer_fold.js';

const encode = (text) => new TextEncoder().encode(text);
const STREAM = 'data: {"a":"é😀"}\n\n: keep-alive\n\nevent: ping\ndata: x\ndata: y\n\ndata: [DONE]\n\n';
const EVENTS = [{ event: '', data: '{"a":"é😀"}' }, { comment: 'keep-alive' }, { event: 'ping', data: 'x\ny' }, { event: '', data: '[DONE]' }];

test('any split into two or single bytes gives the same events', () => {
  for (const stream of [STREAM, STREAM.replaceAll('\n', '\r\n'), STREAM.replaceAll('\n', '\r')]) {
    const bytes = encode(stream);
    for (let cut = 0; cut <= bytes.length; cut++) {
      const reader = new EventStreamReader();
      assert.deepEqual([...reader.push(bytes.subarray(0, cut)), ...reader.push(bytes.subarray(cut))], EVENTS);
      assert.equal(reader.consumed, bytes.length);
    }
    const reader = new EventStreamReader();
    assert.deepEqual([...bytes].flatMap((byte) => reader.push(Uint8Array.of(byte))), EVENTS);
  }
});

test('a stream resumed at `consumed` continues without loss or repetition', () => {
  const bytes = encode(STREAM);
  for (let cut = 0; cut <= bytes.length; cut++) {
    const first = new EventStreamReader();
    const before = first.push(bytes.subarray(0, cut));
    const second = new EventStreamReader(first.consumed);
    const after = second.push(bytes.subarray(first.consumed));
    const data = (events) => events.filter((e) => e.data !== undefined);
    assert.deepEqual([...data(before), ...data(after)], data(EVENTS));
    assert.equal(second.consumed, bytes.length);
  }
});

test('an unfinished event is not given out', () => {
  const reader = new EventStreamReader();
  assert.deepEqual(reader.push(encode('data: half')), []);
  assert.equal(reader.consumed, 0);
});

test('chunks fold into text, reasoning, calls, progress and usage', () => {
  const answer = newAnswer();
  const chunks = [
    { id: 'chatcmpl-1', model: 'm', choices: [{ index: 0, delta: { role: 'assistant', content: '' } }] },
    { queue_position: 2, choices: [] },
    { choices: [{ index: 0, delta: {} }], prompt_progress: { total: 10, cache: 4, processed: 8, time_ms: 5 } },
    { choices: [{ index: 0, delta: { reasoning_content: 'hm ' } }] },
    { choices: [{ index: 0, delta: { content: 'He' } }] },
    { choices: [{ index: 1, delta: { content: 'other' } }] },
    { choices: [{ index: 0, delta: { content: 'llo' } }] },
    { choices: [{ index: 0, delta: { tool_calls: [{ index: 0, id: 'c', function: { name: 'f', arguments: '' } }] } }] },
    { choices: [{ index: 0, delta: { tool_calls: [{ index: 0, function: { arguments: '{"a":' } }] } }] },
    { choices: [{ index: 0, delta: { tool_calls: [{ index: 0, function: { arguments: '1}' } }] } }] },
    { seed: 0, choices: [{ index: 0, delta: {}, finish_reason: 'stop', eos_reason: 'stop_string', stop_str: '###' }] },
    { choices: [], usage: { prompt_tokens: 10 } },
  ];
  for (const chunk of chunks) foldChunk(answer, chunk);
  assert.equal(answer.content, 'Hello');
  assert.equal(answer.reasoning, 'hm ');
  assert.deepEqual(answer.toolCalls, [{ id: 'c', name: 'f', arguments: '{"a":1}' }]);
  assert.deepEqual(answer.progress, { total: 10, cached: 4, processed: 8, time_ms: 5 });
  assert.equal(answer.queuePosition, 2);
  assert.equal(answer.seed, 0);
  assert.equal(answer.stopText, '###');
  assert.equal(answer.usage.prompt_tokens, 10);
});

test('a place in the queue may stand inside the progress', () => {
  const answer = foldChunk(newAnswer(), { choices: [], prompt_progress: { total: 9, processed: 0, queue_position: 3 } });
  assert.equal(answer.queuePosition, 3);
  assert.deepEqual(answer.progress, { total: 9, cached: 0, processed: 0, time_ms: 0 });
});

test('a hostile tool index cannot grow the list', () => {
  const answer = newAnswer();
  foldChunk(answer, { choices: [{ delta: { tool_calls: [{ index: 1e9, function: { name: 'f' } }] } }] });
  assert.equal(answer.toolCalls.length, 1);
});

test('log-probabilities of both routes become one shape', () => {
  assert.deepEqual(readLogprobs({ content: [{ token: 'a', token_id: 5, logprob: -1, top_logprobs: [{ token: 'b', logprob: -2 }] }] }),
    [{ text: 'a', id: 5, logprob: -1, offset: null, top: [{ text: 'b', id: null, logprob: -2 }] }]);
  assert.deepEqual(readLogprobs({ tokens: ['a'], token_logprobs: [null], top_logprobs: [{ x: -2, y: -1 }], text_offset: [3] }),
    [{ text: 'a', id: null, logprob: null, offset: 3, top: [{ text: 'y', id: null, logprob: -1 }, { text: 'x', id: null, logprob: -2 }] }]);
});
