// Conversations as files. Pure: takes records and messages, gives text. Keys are in neither.

/** Number of the file format; import knows every number up to this. */
export const EXPORT_VERSION = 1;

const NODE_FIELDS = ['id', 'parent', 'role', 'content', 'attachments', 'reasoning', 'toolCalls', 'time', 'model', 'adapter', 'fingerprint', 'samplers', 'seed', 'usage', 'finish', 'eosReason', 'stopText', 'timing'];
const RECORD_FIELDS = ['id', 'title', 'created', 'updated', 'pinned', 'tags', 'system', 'samplers', 'prefix', 'active'];
const pick = (fields, from) => Object.fromEntries(fields.map((name) => [name, from[name] ?? null]));

/** Storage gives messages in any order; whoever reads a file needs a parent before its children. */
function parentsFirst(nodes) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const ordered = new Set();
  for (const node of nodes) {
    const chain = new Set();
    for (let at = node; at && !ordered.has(at) && !chain.has(at); at = byId.get(at.parent)) chain.add(at);
    for (const one of [...chain].reverse()) ordered.add(one);
  }
  return [...ordered];
}

/** `items`: `{record, nodes}` each. */
export function exportJson(items, { notebooks = [], presets = [] } = {}) {
  return JSON.stringify({
    format: 'pagella', version: EXPORT_VERSION,
    conversations: items.map(({ record, nodes }) => ({ ...pick(RECORD_FIELDS, record), nodes: parentsFirst(nodes).map((node) => pick(NODE_FIELDS, node)) })),
    notebooks: notebooks.map((n) => pick(['id', 'title', 'text', 'created', 'updated', 'samplers'], n)),
    presets: presets.map((p) => pick(['id', 'name', 'kind', 'values', 'text'], p)),
  }, null, 1);
}

const ROLE_NAMES = { user: 'You', assistant: 'Answer', system: 'System', tool: 'Tool' };

export function exportMarkdown(record, path) {
  const parts = [`# ${record.title || 'Conversation'}`];
  if (record.system) parts.push(`## System\n\n${record.system}`);
  for (const node of path) {
    parts.push(`## ${ROLE_NAMES[node.role] ?? node.role}${node.model ? ` (${node.model})` : ''}`);
    if (node.reasoning) parts.push(node.reasoning.split('\n').map((line) => `> ${line}`).join('\n'));
    if (node.content) parts.push(node.content);
    for (const call of node.toolCalls ?? []) parts.push(`\`\`\`json\n${call.name}(${call.arguments})\n\`\`\``);
  }
  return `${parts.join('\n\n')}\n`;
}

export function exportPlain(record, path) {
  const turns = path.map((node) => `${ROLE_NAMES[node.role] ?? node.role}:\n${node.content}`);
  return `${[record.system ? `System:\n${record.system}` : null, ...turns].filter(Boolean).join('\n\n')}\n`;
}

/** A title as a file name that every system takes. */
export const fileName = (title, ending) => `${(title || 'conversation').replace(/[^\p{L}\p{N} _-]+/gu, '').trim().slice(0, 60) || 'conversation'}.${ending}`;
