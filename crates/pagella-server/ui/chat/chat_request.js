// The body of a chat request from the shown messages. Pure.

import { samplerFields } from '../sampler/sampler_values.js';

/** One message of the wire. */
export function wireMessage(node) {
  const message = { role: node.role, content: wireContent(node) };
  if (node.role === 'assistant') {
    if (node.reasoning) message.reasoning_content = node.reasoning;
    if (node.toolCalls?.length) message.tool_calls = node.toolCalls.map((call) => ({ id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments } }));
  }
  return message;
}

function wireContent(node) {
  const attachments = node.attachments ?? [];
  const texts = attachments.filter((a) => a.kind === 'text').map((a) => `${a.name}:\n\`\`\`\n${a.text}\n\`\`\`\n\n`);
  const text = texts.join('') + node.content;
  const images = attachments.filter((a) => a.kind === 'image');
  if (images.length === 0) return text;
  return [...images.map((image) => ({ type: 'image_url', image_url: { url: image.url } })), { type: 'text', text }];
}

/** A message as it is counted: pictures have no tokens that a tokenizer knows. */
export const countedMessage = (node) => wireMessage({ ...node, attachments: (node.attachments ?? []).filter((a) => a.kind === 'text') });

const isSaid = (node) => node.role !== 'assistant' || node.content || node.reasoning || node.toolCalls?.length;

/**
 * `path`: messages up to what is to be answered; with `continues`, up to the message to be continued.
 * `system` and `samplers` are the conversation's; `model` only if another than the loaded one is wanted.
 */
export function chatBody({ path, system, samplers, prefix = '', continues = false, model = null }) {
  const messages = path.filter(isSaid).map(wireMessage);
  if (system) messages.unshift({ role: 'system', content: system });
  return {
    messages,
    ...(model ? { model } : {}),
    ...samplerFields(samplers ?? {}),
    ...(continues ? { continue_final_message: true } : {}),
    ...(prefix && !continues ? { response_prefix: prefix } : {}),
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
  };
}

/** What the tokenizer is asked for the size of a conversation with a draft behind it. */
export function countBody({ path, system, prefix = '', draft = null }) {
  const messages = path.filter(isSaid).map(countedMessage);
  if (system) messages.unshift({ role: 'system', content: system });
  if (draft || messages.length === 0) messages.push(countedMessage({ role: 'user', content: '', ...draft }));
  return { text: messages, add_generation_prompt: true, ...(prefix ? { response_prefix: prefix } : {}) };
}
