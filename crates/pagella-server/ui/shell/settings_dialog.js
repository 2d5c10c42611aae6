// Settings of this device, and the list of shortcuts with a way to change them.

import { el, fill } from '../page/element.js';
import { button, checkbox, field, select } from '../page/controls.js';
import { openDialog } from '../page/dialog.js';
import { formatBytes } from '../page/format.js';
import { settings } from '../page/settings.js';
import { showError } from '../page/toast.js';
import { say } from '../page/words.js';
import { storageLasts, storageUsage } from '../data/database.js';
import { checkServerCopy } from '../chat/server_copy.js';
import { commandById } from './commands.js';
import { LOCAL_KEYS, SHORTCUTS, keysAllowed, keysFor, keysOf } from './shortcuts.js';

export function openSettings() {
  const flags = new Map();
  // A switch that something else turned back is seen to go back.
  const unwatch = settings.watch((now) => { for (const [name, box] of flags) box.input.checked = now[name]; }, { now: false });
  return openDialog(say('settings.title'), () => {
    const now = settings.value;
    const range = (name, min, max, step, unit) => {
      const out = el('output', null, `${now[name]} ${unit}`);
      const input = el('input', { type: 'range', min, max, step, value: now[name], on: { input: () => { settings.patch({ [name]: Number(input.value) }); out.textContent = `${input.value} ${unit}`; } } });
      const node = field(say(`settings.${name}`), input);
      node.firstChild.append(' ', out);
      return node;
    };
    const flag = (name, allow) => {
      const box = checkbox(say(`settings.${name}`), now[name], async (value) => { if (value) await allow?.(); settings.patch({ [name]: value }); }, { onRefused: showError });
      flags.set(name, box);
      return box;
    };
    const copy = flag('serverCopy', checkServerCopy);
    checkServerCopy().catch((error) => {
      if (error.status !== 501) return;
      copy.input.disabled = true;
      copy.lastChild.append(el('small', null, say('copy.off')));
    });
    const usage = el('p.field-help');
    Promise.all([storageUsage(), storageLasts()]).then(([bytes, lasts]) => { usage.textContent = lasts ? say('settings.usage', { size: formatBytes(bytes) }) : say('settings.noStorage'); });
    return el('div.settings', null,
      field(say('settings.theme'), select([['system', say('theme.system')], ['light', say('theme.light')], ['dark', say('theme.dark')]], now.theme, (theme) => settings.patch({ theme }))),
      range('textSize', 13, 24, 1, 'px'), range('measure', 30, 80, 2, 'rem'),
      flag('enterSends'), flag('openReasoning'), flag('modelTitles'), flag('announce'), flag('announceText'), copy, usage);
  }).then(unwatch);
}

export function openShortcutHelp() {
  return openDialog(say('shortcuts.title'), () => {
    const body = el('tbody');
    const draw = () => fill(body, SHORTCUTS.filter(([id]) => commandById(id)).map(([id]) => el('tr', null, el('td', null, commandById(id).title), el('td', null, keyButton(id, draw)))),
      LOCAL_KEYS.map(([name, keys]) => el('tr', null, el('td', null, say(name)), el('td', null, el('kbd', null, keys)))));
    draw();
    return [el('p', null, say('shortcuts.help')), el('table.shortcut-table', null, body), button({ label: say('shortcuts.reset'), variant: 'link', onClick: () => { settings.patch({ shortcuts: {} }); draw(); } })];
  });
}

/** Shows the keys; pressed, it takes the next combination. */
function keyButton(id, draw) {
  const node = el('button.key-button', { type: 'button', title: say('shortcuts.change') }, el('kbd', null, keysFor(id)));
  node.addEventListener('click', () => {
    fill(node, say('shortcuts.press'));
    const take = (event) => {
      if (['Control', 'Shift', 'Alt', 'Meta'].includes(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
      node.removeEventListener('keydown', take);
      const keys = keysOf(event);
      const taken = SHORTCUTS.some(([other]) => other !== id && keysFor(other) === keys);
      if (event.key !== 'Escape' && keysAllowed(keys) && !taken) settings.patch({ shortcuts: { ...settings.value.shortcuts, [id]: keys } });
      draw();
    };
    node.addEventListener('keydown', take);
  });
  return node;
}
