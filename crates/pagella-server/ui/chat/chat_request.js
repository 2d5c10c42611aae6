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

/**
 * `path`: messages up to what is to be answered; with `continues`, up to the message to be continued.
 * `system` and `samplers` are the conversation's; `model` only if another than the loaded one is wanted.
 */
export function chatBody({ path, system, samplers, prefix = '', continues = false, model = null }) {
  const messages = path.filter((node) => !(node.role === 'assistant' && !node.content && !node.reasoning && !node.toolCalls?.length)).map(wireMessage);
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
