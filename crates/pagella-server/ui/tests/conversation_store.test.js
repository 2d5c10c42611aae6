// Conversations that were deleted for good do not come back from the server; storage is the stand-in in memory.

import test from 'node:test';
import assert from 'node:assert/strict';
import { planCopies } from '../data/copy_plan.js';

// An open channel to other tabs would keep this process alive.
delete globalThis.BroadcastChannel;
const { conversations, destroyConversation, destroyedConversations, forgetDestroyed, loadConversations, newConversation, saveConversation } = await import('../data/conversation_store.js');

const localOf = ({ id, copy }, deleted) => ({ id, version: copy?.version ?? null, changed: false, deleted });

test('a conversation deleted for good before the server heard of it does not come back', async () => {
  const record = newConversation({ copy: { version: '5', stamp: 1 } });
  await saveConversation(record);
  await destroyConversation(record.id);
  assert.equal(conversations.value.length, 0);
  // A reload in between.
  await loadConversations();
  assert.equal(conversations.value.length, 0, 'its mark is no conversation');
  const locals = destroyedConversations().map((mark) => localOf(mark, true));
  assert.deepEqual(planCopies(locals, new Map([[record.id, '5']])), [{ act: 'remove', id: record.id, version: '5' }]);
  await forgetDestroyed(record.id);
  await loadConversations();
  assert.deepEqual(destroyedConversations(), []);
});

test('one that no server has seen leaves nothing', async () => {
  const record = newConversation();
  await saveConversation(record);
  await destroyConversation(record.id);
  assert.deepEqual([conversations.value, destroyedConversations()], [[], []]);
});
