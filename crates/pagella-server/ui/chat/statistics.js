// The line under an answer: who wrote it, how fast, from how much, and why it ended. Texts only.

import { formatCount, formatPercent, formatRate, formatSeconds } from '../page/format.js';
import { say } from '../page/words.js';

/** `[label, value, explanation]` of everything known; values unknown are left out. */
export function statisticsOf(node) {
  const usage = node.usage ?? {};
  const prompt = usage.prompt_tokens;
  const cached = usage.prompt_tokens_details?.cached_tokens;
  const drafted = (usage.draft_accepted_tokens ?? 0) + (usage.draft_rejected_tokens ?? 0);
  const rows = [
    usage.completion_tokens !== undefined && ['tokens', say('stat.tokens', { n: formatCount(usage.completion_tokens) }), say('stat.tokensHelp')],
    usage.completion_tokens_per_sec && ['rate', say('stat.rate', { n: formatRate(usage.completion_tokens_per_sec) }), say('stat.rateHelp')],
    node.timing?.first_s && ['first', say('stat.first', { t: formatSeconds(node.timing.first_s) }), say('stat.firstHelp')],
    prompt !== undefined && ['prompt', say('stat.prompt', { n: formatCount(prompt) }), say('stat.promptHelp')],
    prompt > 0 && cached !== undefined && ['cached', say('stat.cached', { p: formatPercent(cached / prompt) }), say('stat.cachedHelp', { n: formatCount(cached), of: formatCount(prompt) })],
    drafted > 0 && ['draft', say('stat.draft', { p: formatPercent(usage.draft_accepted_tokens / drafted) }), say('stat.draftHelp', { n: formatCount(drafted), steps: formatCount(usage.draft_steps ?? 0), t: formatSeconds(usage.draft_time ?? 0) })],
  ];
  return rows.filter(Boolean);
}

/** Whether an answer ended because nothing more fits: it cannot be continued. */
export const isContextFull = (node) => node.finish === 'length' && node.eosReason === 'length_limit';

/** Why the answer ended, in words; empty for the ordinary end. */
export function endingOf(node) {
  if (node.finish === 'stopped') return say('end.stopped');
  if (node.finish === 'length') return say(isContextFull(node) ? 'end.context' : 'end.length');
  if (node.finish === 'tool_calls') return say('end.tools');
  switch (node.eosReason) {
    case 'stop_string': return say('end.stopText', { text: node.stopText ?? '' });
    case 'loop_detected': return say('end.loop');
    case 'ban_exhausted': return say('end.ban');
    case 'cancelled': return say('end.cancelled');
    default: return '';
  }
}

/** What the running state is called, with numbers where there are any. */
export function phaseText({ phase, progress, queuePosition }) {
  switch (phase) {
    case 'queued': return say('phase.queued', { n: queuePosition });
    case 'reading': return say('phase.reading', { done: formatCount(progress.processed), total: formatCount(progress.total), rate: formatRate(readingRate(progress)), left: timeLeft(progress) });
    case 'thinking': return say('phase.thinking');
    case 'answering': return say('phase.answering');
    case 'waiting': return say('phase.waiting');
    default: return say('phase.sent');
  }
}

/** Computed tokens per second: cached ones cost nothing and do not count. */
export function readingRate({ processed, cached, time_ms }) {
  return time_ms > 0 ? ((processed - cached) * 1000) / time_ms : null;
}

function timeLeft(progress) {
  const rate = readingRate(progress);
  return rate > 0 ? formatSeconds((progress.total - progress.processed) / rate) : '–';
}
