// Anthropic's client: messages, streams, tools, counting, models, errors, leaving.
'use strict';

const assert = require('node:assert/strict');
const { after, afterEach, before, test } = require('node:test');

const { Anthropic } = require('@anthropic-ai/sdk');

const { API_KEY, Server } = require('./server.js');
const { TIME, checkArguments } = require('./tool.js');

const HELLO = [{ role: 'user', content: 'What is an array?' }];
const TOOL = { name: 'get_time', description: 'The time', input_schema: TIME, strict: true };

let server;
let ant;

before(async () => {
  server = await Server.start();
  ant = new Anthropic({ baseURL: server.base, apiKey: API_KEY, maxRetries: 0, timeout: 120_000 });
});
after(() => server?.stop());
afterEach(() => server.waitIdle());

const fields = (options = {}) => ({ model: 'demo', messages: HELLO, max_tokens: 16, temperature: 0, ...options });
const ask = (options) => ant.messages.create(fields(options));

async function all(stream) {
  const items = [];
  for await (const item of await stream) items.push(item);
  return items;
}

test('a message is answered', async () => {
  const message = await ask({ system: 'Be brief.' });
  assert.ok(message.id.startsWith('msg_') && message.content[0].text);
  assert.ok(['end_turn', 'max_tokens'].includes(message.stop_reason));
  assert.ok(message.usage.output_tokens > 0 && message.usage.output_tokens <= 16);
});

test('the stream helper says the same', async () => {
  const whole = await ask();
  const stream = ant.messages.stream(fields());
  const final = await stream.finalMessage();
  assert.equal(final.content[0].text, whole.content[0].text);
  assert.deepEqual([final.stop_reason, final.usage.output_tokens], [whole.stop_reason, whole.usage.output_tokens]);
});

test('events come in order', async () => {
  const kinds = (await all(ask({ stream: true }))).map((event) => event.type).filter((kind) => kind !== 'ping');
  assert.deepEqual(kinds.slice(0, 2), ['message_start', 'content_block_start']);
  assert.deepEqual(kinds.slice(-3), ['content_block_stop', 'message_delta', 'message_stop']);
  assert.deepEqual([...new Set(kinds.slice(2, -3))], ['content_block_delta']);
});

test('tokens are counted', async () => {
  const count = await ant.messages.countTokens({ model: 'demo', messages: HELLO });
  const { usage } = await ask();
  assert.equal(count.input_tokens, usage.input_tokens + (usage.cache_read_input_tokens ?? 0));
});

test('a tool is called, whole and streamed, and its result continues', async () => {
  const options = { tools: [TOOL], tool_choice: { type: 'any', disable_parallel_tool_use: true }, max_tokens: 200 };
  const first = await ask(options);
  assert.equal(first.stop_reason, 'tool_use');
  const call = first.content.find((block) => block.type === 'tool_use');
  checkArguments(call.name, call.input);
  const streamed = await ant.messages.stream(fields(options)).finalMessage();
  assert.deepEqual(streamed.content.find((block) => block.type === 'tool_use').input, call.input);
  const turn = [...HELLO, { role: 'assistant', content: first.content }, { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: '12:00' }] }];
  const second = await ask({ messages: turn, tools: [TOOL], tool_choice: { type: 'none' } });
  assert.equal(second.content[0].type, 'text');
});

test('models are listed', async () => {
  assert.deepEqual((await all(ant.models.list())).map((model) => model.id), ['demo']);
});

test('errors are its own', async () => {
  await assert.rejects(ask({ temperature: 99 }), (error) => error instanceof Anthropic.BadRequestError && error.error.error.type === 'invalid_request_error');
  const stranger = new Anthropic({ baseURL: server.base, apiKey: 'wrong', maxRetries: 0 });
  await assert.rejects(stranger.messages.create(fields()), Anthropic.AuthenticationError);
});

test('whoever aborts leaves nothing', async () => {
  const stream = ant.messages.stream(fields({ max_tokens: 1900, ban_eos_token: true }));
  stream.on('text', () => stream.abort());
  await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
});
