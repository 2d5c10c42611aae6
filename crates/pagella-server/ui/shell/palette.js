// The command palette: type a few letters, reach any action or conversation.

import { el, fill, setAttribute } from '../page/element.js';
import { openDialog } from '../page/dialog.js';
import { say } from '../page/words.js';
import { conversations, searchConversations } from '../data/conversation_store.js';
import { allCommands } from './commands.js';
import { keysFor } from './shortcuts.js';

const RESULTS_MAX = 60;

/** How well letters fit a title: all in order; lower is better, null is no fit. */
export function fitScore(letters, title) {
  const text = title.toLowerCase();
  const whole = text.indexOf(letters);
  if (whole >= 0) return whole;
  let at = -1;
  let gaps = 0;
  for (const letter of letters) {
    const next = text.indexOf(letter, at + 1);
    if (next < 0) return null;
    gaps += next - at - 1;
    at = next;
  }
  return 100 + gaps;
}

export function openPalette(openConversation) {
  let number = 0;
  return openDialog(say('palette.title'), (close) => {
    const results = el('ul.palette-results', { role: 'listbox', id: 'palette-results', 'aria-label': say('palette.results') });
    const input = el('input.palette-input', { type: 'text', role: 'combobox', autofocus: true, autocomplete: 'off', spellcheck: 'false', placeholder: say('palette.placeholder'), 'aria-label': say('palette.placeholder'), 'aria-controls': 'palette-results', 'aria-expanded': 'true' });
    let items = [];
    let chosen = 0;
    const choose = (index) => {
      chosen = Math.max(0, Math.min(items.length - 1, index));
      [...results.children].forEach((node, i) => {
        setAttribute(node, 'aria-selected', String(i === chosen));
        if (i === chosen) { node.scrollIntoView({ block: 'nearest' }); setAttribute(input, 'aria-activedescendant', node.id); }
      });
    };
    const draw = () => {
      fill(results, items.slice(0, RESULTS_MAX).map((item, i) => el('li.palette-item', { role: 'option', id: `palette-${i}`, on: { click: () => { close(); item.run(); } } }, el('span', null, item.title), item.note ? el('small', null, item.note) : null, item.keys ? el('kbd', null, item.keys) : null)));
      choose(0);
    };
    const search = () => {
      const words = input.value.trim().toLowerCase();
      const mine = ++number;
      const commands = allCommands().filter((command) => command.available() && command.id !== 'palette').map((command) => ({ title: command.title, run: command.run, keys: keysFor(command.id), score: fitScore(words, command.title) })).filter((item) => item.score !== null).sort((a, b) => a.score - b.score);
      const open = (record) => ({ title: record.title || say('untitled'), note: say('palette.conversation'), run: () => openConversation(record) });
      items = words ? commands : [...commands, ...conversations.value.filter((r) => !r.deleted).slice(0, 8).map(open)];
      draw();
      if (words.length < 2) return;
      const seen = new Set();
      searchConversations(words, (record) => {
        if (mine !== number || seen.has(record.id)) return;
        seen.add(record.id);
        items = [...items, open(record)];
        draw();
      }, () => mine === number);
    };
    input.addEventListener('input', search);
    input.addEventListener('keydown', (event) => {
      if (event.key === 'ArrowDown') { event.preventDefault(); choose(chosen + 1); }
      if (event.key === 'ArrowUp') { event.preventDefault(); choose(chosen - 1); }
      if (event.key === 'Enter' && !event.isComposing) { event.preventDefault(); const item = items[chosen]; close(); item?.run(); }
    });
    search();
    return [input, results];
  }, { className: 'palette' });
}
