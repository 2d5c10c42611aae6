// Vercel's `ai` with its provider for compatible servers, and LangChain in JavaScript: tools, typed answers, streams.
'use strict';

const assert = require('node:assert/strict');
const { after, afterEach, before, test } = require('node:test');

const { createOpenAICompatible } = require('@ai-sdk/openai-compatible');
const { ChatOpenAI } = require('@langchain/openai');
const { Output, generateObject, generateText, streamText, tool } = require('ai');
const { z } = require('zod');

const { API_KEY, Server } = require('./server.js');

const prompt = 'How is the weather in Paris for the next days?';
const Weather = z.object({ city: z.enum(['Paris', 'Rome']), days: z.number().int().min(1).max(7), hourly: z.boolean() });
const options = { maxOutputTokens: 200, temperature: 0, maxRetries: 0 };

let server;
let model;
let calls;
let tools;

before(async () => {
  server = await Server.start();
  const provider = createOpenAICompatible({ name: 'pagella', baseURL: `${server.base}/v1`, apiKey: API_KEY, supportsStructuredOutputs: true });
  model = provider('demo');
  tools = {
    get_weather: tool({ description: 'The weather of a city', inputSchema: Weather, execute: async (input) => { calls.push(input); return 'sunny'; } }),
  };
});
after(() => server?.stop());
afterEach(() => server.waitIdle());

test('ai: a text is written, whole and streamed', async () => {
  const whole = await generateText({ model, prompt, ...options, maxOutputTokens: 12 });
  assert.ok(whole.text);
  let text = '';
  for await (const piece of streamText({ model, prompt, ...options, maxOutputTokens: 12 }).textStream) text += piece;
  assert.equal(text, whole.text);
});

test('ai: a tool is called with what its schema allows', async () => {
  for (const toolChoice of [{ type: 'tool', toolName: 'get_weather' }, 'required']) {
    calls = [];
    const providerOptions = { pagella: { parallel_tool_calls: false } };
    const answer = await generateText({ model, prompt, tools, toolChoice, providerOptions, ...options });
    assert.deepEqual([answer.toolCalls.length, calls.length], [1, 1]);
    Weather.parse(calls[0]);
    calls = [];
    const stream = streamText({ model, prompt, tools, toolChoice, providerOptions, ...options });
    assert.deepEqual((await stream.toolCalls)[0].input, answer.toolCalls[0].input);
  }
});

test('ai: an object is generated', async () => {
  const { object } = await generateObject({ model, prompt, schema: Weather, ...options });
  Weather.parse(object);
  const { output } = await generateText({ model, prompt, output: Output.object({ schema: Weather }), ...options });
  Weather.parse(output);
});

test('LangChain: a typed answer, by a call and by a schema', async () => {
  const chat = new ChatOpenAI({ model: 'demo', apiKey: API_KEY, configuration: { baseURL: `${server.base}/v1` }, maxRetries: 0, maxTokens: 200, temperature: 0 });
  for (const method of ['functionCalling', 'jsonSchema']) {
    Weather.parse(await chat.withStructuredOutput(Weather, { method, name: 'weather' }).invoke(prompt));
  }
});
