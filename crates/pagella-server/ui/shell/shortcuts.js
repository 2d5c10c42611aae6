// Shortcuts are data: a command's name and its keys, which the person may change. Keys of browsers and
// screen readers are never taken; single letters count only outside of fields.

import { settings } from '../page/settings.js';
import { commandById, runCommand } from './commands.js';

/** `[command, keys]`. Ctrl stands for Command on Apple machines. */
export const SHORTCUTS = [
  ['chat.new', 'Ctrl+Shift+O'], ['palette', 'Ctrl+K'], ['list.toggle', 'Ctrl+B'], ['side.toggle', 'Ctrl+.'],
  ['message.regenerate', 'Alt+R'], ['message.continue', 'Alt+C'], ['message.edit', 'Alt+E'],
  ['view.chat', 'Alt+1'], ['view.notebook', 'Alt+2'], ['view.engine', 'Alt+3'], ['view.models', 'Alt+4'], ['help', '?'],
];

/** Handled where they happen; listed for the help page only. */
export const LOCAL_KEYS = [
  ['keys.send', 'Enter'], ['keys.newline', 'Shift+Enter'], ['keys.sendAlways', 'Ctrl+Enter'], ['keys.stop', 'Esc'], ['keys.editLast', '↑'],
  ['keys.messages', 'J K ↑ ↓'], ['keys.siblings', '← →'], ['keys.generate', 'Shift+Enter'], ['keys.oneToken', 'Ctrl+Enter'], ['keys.undoGeneration', 'Ctrl+Z'],
];

/** Never ours: reload, find, tabs, windows, address bar, developer tools. */
const RESERVED_KEYS = new Set(['Ctrl+R', 'Ctrl+F', 'Ctrl+T', 'Ctrl+W', 'Ctrl+N', 'Ctrl+L', 'Ctrl+P', 'Ctrl+S', 'Ctrl+Tab', 'Ctrl+Shift+T', 'Ctrl+Shift+I', 'F5', 'F12', 'Tab']);

export const keysFor = (id) => settings.value.shortcuts[id] ?? SHORTCUTS.find(([command]) => command === id)?.[1] ?? '';

/** Whether `keys` may be given to a command. */
export const keysAllowed = (keys) => keys !== '' && !RESERVED_KEYS.has(keys);

/** A key event as text, such as `Ctrl+Shift+O`. */
export function keysOf(event) {
  const letter = event.key.length === 1 ? event.key.toUpperCase() : event.key;
  // With Alt some layouts write other characters: the physical key says what was meant.
  const physical = /^(?:Key|Digit)(.)$/.exec(event.code ?? '')?.[1];
  const name = event.altKey && physical ? physical : letter;
  const symbol = name.length === 1 && !/[A-Z0-9]/.test(name);
  return [event.ctrlKey || event.metaKey ? 'Ctrl' : '', event.altKey ? 'Alt' : '', event.shiftKey && !symbol ? 'Shift' : '', name].filter(Boolean).join('+');
}

const inField = (target) => target instanceof Element && target.closest('input, textarea, select, [contenteditable]');

export function startShortcuts() {
  document.addEventListener('keydown', (event) => {
    if (event.isComposing || event.defaultPrevented) return;
    const keys = keysOf(event);
    const entry = SHORTCUTS.find(([id]) => keysFor(id) === keys);
    if (!entry || !commandById(entry[0])) return;
    if (!event.ctrlKey && !event.metaKey && !event.altKey && inField(event.target)) return;
    if (document.querySelector('dialog[open]') && entry[0] !== 'palette') return;
    if (runCommand(entry[0])) event.preventDefault();
  });
}
