// OpenAI's client: the Responses interface.
'use strict';

const assert = require('node:assert/strict');
const { after, afterEach, before, test } = require('node:test');

const { OpenAI } = require('openai');

const { API_KEY, Server } = require('./server.js');
const { TIME, checkArguments } = require('./tool.js');

const TOOL = { type: 'function', name: 'get_time', description: 'The time', parameters: TIME, strict: true };
const ENDINGS = ['response.completed', 'response.incomplete', 'response.failed'];

let server;
let oai;

before(async () => {
  server = await Server.start();
  oai = new OpenAI({ baseURL: `${server.base}/v1`, apiKey: API_KEY, maxRetries: 0, timeout: 120_000 });
});
after(() => server?.stop());
afterEach(() => server.waitIdle());

const ask = (options = {}) => oai.responses.create({ model: 'demo', input: 'What is an array?', max_output_tokens: 16, temperature: 0, ...options });

async function all(stream) {
  const events = [];
  for await (const event of await stream) events.push(event);
  return events;
}

test('an input is answered', async () => {
  const response = await ask({ instructions: 'Be brief.' });
  assert.ok(response.id.startsWith('resp_') && response.output_text);
  assert.ok(['completed', 'incomplete'].includes(response.status));
  assert.ok(response.usage.output_tokens <= 16);
});

test('events come in order and say the same', async () => {
  const whole = await ask();
  const events = await all(ask({ stream: true }));
  assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, idx) => idx));
  // On a busy machine the response may have to wait, which is said.
  const kinds = events.map((event) => event.type).filter((kind) => kind !== 'response.queued');
  assert.deepEqual(kinds.slice(0, 2), ['response.created', 'response.in_progress']);
  assert.equal(events.filter((event) => ENDINGS.includes(event.type)).length, 1);
  assert.ok(ENDINGS.includes(events.at(-1).type));
  const text = events.filter((event) => event.type === 'response.output_text.delta').map((event) => event.delta).join('');
  assert.equal(text, whole.output_text);
});

test('the stream helper accumulates', async () => {
  const options = { max_output_tokens: 40, regex_pattern: '[a-z]{3,9} [a-z]{3,9}\\.' };
  const stream = oai.responses.stream({ model: 'demo', input: 'What is an array?', temperature: 0, ...options });
  const final = await stream.finalResponse();
  assert.equal(final.output_text, (await ask(options)).output_text);
});

test('a previous response is continued', async () => {
  const first = await ask();
  const second = await ask({ input: 'And a list?', previous_response_id: first.id });
  const alone = await ask({ input: 'And a list?' });
  assert.equal(second.previous_response_id, first.id);
  assert.ok(second.usage.input_tokens > alone.usage.input_tokens);
  assert.ok((await oai.responses.inputItems.list(second.id)).data.length);
});

test('responses are kept and deleted', async () => {
  const response = await ask();
  assert.equal((await oai.responses.retrieve(response.id)).output_text, response.output_text);
  await oai.responses.delete(response.id);
  await assert.rejects(oai.responses.retrieve(response.id), OpenAI.NotFoundError);
});

test('a tool is called, whole and streamed, and its result continues', async () => {
  const options = { tools: [TOOL], tool_choice: 'required', parallel_tool_calls: false, max_output_tokens: 200 };
  const first = await ask(options);
  const call = first.output.find((item) => item.type === 'function_call');
  checkArguments(call.name, JSON.parse(call.arguments));
  const events = await all(ask({ ...options, stream: true }));
  const pieces = events.filter((event) => event.type === 'response.function_call_arguments.delta').map((event) => event.delta).join('');
  const [done] = events.filter((event) => event.type === 'response.function_call_arguments.done');
  assert.deepEqual([pieces, done.arguments], [call.arguments, call.arguments]);
  const result = [{ type: 'function_call_output', call_id: call.call_id, output: '12:00' }];
  const second = await ask({ input: result, previous_response_id: first.id, tools: [TOOL], tool_choice: 'none' });
  assert.ok(second.output_text);
});

test('structured output follows its schema', async () => {
  const schema = { type: 'object', properties: { count: { type: 'integer', minimum: 0, maximum: 99 } }, required: ['count'], additionalProperties: false };
  const response = await ask({ text: { format: { type: 'json_schema', name: 'item', schema, strict: true } }, max_output_tokens: 60 });
  assert.equal(typeof JSON.parse(response.output_text).count, 'number');
});

test('a response in the background finishes', async () => {
  const response = await ask({ background: true });
  let now;
  await server.waitFor('the response', async () => {
    now = await oai.responses.retrieve(response.id);
    return ['completed', 'incomplete'].includes(now.status);
  });
  assert.equal(now.output_text, (await ask()).output_text);
});

test('a response in the background can be cancelled', async () => {
  const response = await ask({ background: true, max_output_tokens: 1900, ban_eos_token: true });
  assert.ok(['queued', 'in_progress'].includes(response.status));
  assert.equal((await oai.responses.cancel(response.id)).status, 'cancelled');
  await server.waitIdle();
  assert.equal((await oai.responses.retrieve(response.id)).status, 'cancelled');
});
