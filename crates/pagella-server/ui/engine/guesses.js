// How guesses fared: one number for the history of a gauge, and a text that says more.

import { formatPercent, formatRate } from '../page/format.js';
import { say } from '../page/words.js';

/** Share of the guessed tokens that were right; undefined where nothing was guessed. */
export function shareGuessedRight(stats) {
  const { accepted, guessed } = stats.draft ?? {};
  return guessed > 0 && accepted >= 0 ? accepted / guessed : undefined;
}

/** The same in words, with how many tokens were guessed at once. */
export function describeGuesses(share, stats) {
  return say('gauge.draftValue', { p: formatPercent(share), n: formatRate(stats.draft.guessed / stats.draft.steps) });
}
