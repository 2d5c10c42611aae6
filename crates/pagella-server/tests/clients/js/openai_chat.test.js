// OpenAI's client: chat, completions, tools, structured output, log-probabilities, models, leaving.
'use strict';

const assert = require('node:assert/strict');
const { after, afterEach, before, test } = require('node:test');

const { OpenAI } = require('openai');

const { API_KEY, Server } = require('./server.js');
const { TIME, WEATHER, checkArguments } = require('./tool.js');

const HELLO = [{ role: 'user', content: 'What is an array?' }];
const TOOLS = [
  { type: 'function', function: { name: 'get_weather', description: 'The weather of a city', parameters: WEATHER, strict: true } },
  { type: 'function', function: { name: 'get_time', parameters: TIME, strict: true } },
];

let server;
let oai;

before(async () => {
  server = await Server.start();
  oai = new OpenAI({ baseURL: `${server.base}/v1`, apiKey: API_KEY, maxRetries: 0, timeout: 120_000 });
});
after(() => server?.stop());
afterEach(() => server.waitIdle());

const ask = (options = {}) => oai.chat.completions.create({ model: 'demo', messages: HELLO, max_tokens: 16, temperature: 0, ...options });

async function all(stream) {
  const items = [];
  for await (const item of await stream) items.push(item);
  return items;
}

test('a message is answered', async () => {
  const answer = await ask();
  assert.equal(answer.object, 'chat.completion');
  assert.equal(answer.choices[0].message.role, 'assistant');
  assert.ok(answer.choices[0].message.content);
  assert.ok(answer.usage.completion_tokens <= 16);
});

test('a stream says what the whole answer says', async () => {
  for (const n of [1, 3]) {
    const options = { n, temperature: 0.9, seed: 7 };
    const whole = await ask(options);
    const chunks = await all(ask({ ...options, stream: true, stream_options: { include_usage: true } }));
    for (const choice of whole.choices) {
      const own = chunks.flatMap((chunk) => chunk.choices).filter((piece) => piece.index === choice.index);
      assert.equal(own.map((piece) => piece.delta.content ?? '').join(''), choice.message.content);
      assert.equal(own.at(-1).finish_reason, choice.finish_reason);
    }
    assert.deepEqual(chunks.at(-1).usage.completion_tokens, whole.usage.completion_tokens);
  }
});

test('the stream helper accumulates', async () => {
  const stream = oai.chat.completions.stream({ model: 'demo', messages: HELLO, max_tokens: 16, temperature: 0 });
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, (await ask()).choices[0].message.content);
});

test('completions are answered, whole and streamed', async () => {
  const options = { model: 'demo', prompt: 'Once', max_tokens: 6, temperature: 0 };
  const whole = await oai.completions.create({ ...options, logprobs: 2 });
  assert.equal(whole.choices[0].logprobs.tokens.length, whole.usage.completion_tokens);
  const chunks = await all(oai.completions.create({ ...options, stream: true }));
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.text ?? '').join(''), whole.choices[0].text);
});

test('log-probabilities cover every token', async () => {
  const answer = await ask({ logprobs: true, top_logprobs: 3 });
  const { content } = answer.choices[0].logprobs;
  assert.equal(content.map((entry) => entry.token).join(''), answer.choices[0].message.content);
  assert.ok(content.every((entry) => entry.logprob <= 0 && entry.top_logprobs.length === 3));
});

test('a named tool is called', async () => {
  for (const name of ['get_weather', 'get_time']) {
    const answer = await ask({ tools: TOOLS, tool_choice: { type: 'function', function: { name } }, parallel_tool_calls: false, max_tokens: 200 });
    assert.equal(answer.choices[0].finish_reason, 'tool_calls');
    const [call, ...others] = answer.choices[0].message.tool_calls;
    assert.deepEqual([call.function.name, others.length], [name, 0]);
    checkArguments(name, JSON.parse(call.function.arguments));
  }
});

/** Calls of a stream, held to the order in which their pieces may come. */
function collect(chunks) {
  const calls = [];
  for (const piece of chunks.flatMap((chunk) => chunk.choices).flatMap((choice) => choice.delta.tool_calls ?? [])) {
    if (piece.index === calls.length) {
      assert.ok(piece.id && piece.type === 'function' && piece.function.name);
      calls.push({ name: piece.function.name, arguments: '' });
    }
    assert.equal(piece.index, calls.length - 1, 'an earlier call was opened again');
    calls.at(-1).arguments += piece.function.arguments ?? '';
  }
  return calls;
}

test('calls in parallel have ids of their own and stream as they are', async () => {
  for (let seed = 0; seed < 20; seed += 1) {
    const options = { tools: TOOLS, tool_choice: 'required', temperature: 1.5, max_tokens: 120, seed };
    const [choice] = (await ask(options)).choices;
    const calls = choice.message.tool_calls;
    const complete = choice.finish_reason === 'length' ? calls.slice(0, -1) : calls;
    if (complete.length < 2) continue;
    for (const call of complete) checkArguments(call.function.name, JSON.parse(call.function.arguments));
    assert.equal(new Set(calls.map((call) => call.id)).size, calls.length);
    const streamed = collect(await all(ask({ ...options, stream: true })));
    assert.deepEqual(streamed.map((call) => call.arguments), calls.map((call) => call.function.arguments));
    return;
  }
  assert.fail('no answer had several calls');
});

test('the result of a call makes a second turn', async () => {
  const first = (await ask({ tools: TOOLS, tool_choice: 'required', parallel_tool_calls: false, max_tokens: 200 })).choices[0].message;
  const result = { role: 'tool', tool_call_id: first.tool_calls[0].id, content: 'sunny' };
  const second = await ask({ messages: [...HELLO, first, result], tools: TOOLS, tool_choice: 'none' });
  assert.ok(second.choices[0].message.content && !second.choices[0].message.tool_calls);
});

test('the runner calls functions and goes on', async () => {
  const zones = [];
  const run = oai.chat.completions.runTools({
    model: 'demo', messages: HELLO, max_tokens: 200, temperature: 0,
    tool_choice: { type: 'function', function: { name: 'get_time' } },
    parallel_tool_calls: false,
    tools: [{ type: 'function', function: { name: 'get_time', parameters: TIME, strict: true, parse: JSON.parse, function: ({ zone }) => { zones.push(zone); return '12:00'; } } }],
  }, { maxChatCompletions: 1 });
  await run.done();
  assert.ok(zones.length === 1 && ['UTC', 'CET'].includes(zones[0]), String(zones));
});

test('structured output follows its schema', async () => {
  const schema = { type: 'object', properties: { count: { type: 'integer', minimum: 0, maximum: 99 }, sold: { type: 'boolean' } }, required: ['count', 'sold'], additionalProperties: false };
  const answer = await ask({ response_format: { type: 'json_schema', json_schema: { name: 'item', schema, strict: true } }, max_tokens: 100 });
  const item = JSON.parse(answer.choices[0].message.content);
  assert.deepEqual([typeof item.count, typeof item.sold], ['number', 'boolean']);
});

test('models are listed', async () => {
  assert.deepEqual((await all(oai.models.list())).map((model) => model.id), ['demo']);
  assert.equal((await oai.models.retrieve('demo')).id, 'demo');
});

test('errors are its own', async () => {
  await assert.rejects(ask({ temperature: 99 }), (error) => error instanceof OpenAI.BadRequestError && error.param === 'temperature' && error.code === 'out_of_range');
  const stranger = new OpenAI({ baseURL: `${server.base}/v1`, apiKey: 'wrong', maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
});

test('whoever aborts leaves nothing', async () => {
  const long = { max_tokens: 1900, ban_eos_token: true };
  const stream = await ask({ ...long, stream: true });
  let seen = 0;
  for await (const _ of stream) {
    seen += 1;
    if (seen === 5) stream.controller.abort();
  }
  await server.waitIdle();
  const controller = new AbortController();
  const plain = oai.chat.completions.create({ model: 'demo', messages: HELLO, ...long }, { signal: controller.signal });
  setTimeout(() => controller.abort(), 50);
  await assert.rejects(plain, OpenAI.APIUserAbortError);
});
