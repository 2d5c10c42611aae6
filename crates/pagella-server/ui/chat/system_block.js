// The system prompt as the first block of the transcript: folded when empty, with named presets.

import { el, setText } from '../page/element.js';
import { button } from '../page/controls.js';
import { promptDialog } from '../page/dialog.js';
import { openMenu } from '../page/menu.js';
import { say } from '../page/words.js';
import { deletePreset, presetsOf, savePreset } from '../data/preset_store.js';

export class SystemBlock {
  constructor(chat, onChange) {
    this.area = el('textarea.system-text', { rows: 2, placeholder: say('system.placeholder'), 'aria-label': say('system.label'), dir: 'auto', on: { input: () => { chat.setSystem(this.area.value); this.#summary(); onChange(); } } });
    this.words = el('span.system-words');
    const menu = button({ label: say('system.presets'), icon: 'list', 'aria-haspopup': 'menu', onClick: () => openMenu(menu, this.#items()) });
    this.node = el('details.system-block', null, el('summary', null, el('span.system-name', null, say('system.label')), this.words), el('div.system-body', null, this.area, menu));
    this.chat = chat;
    this.onChange = onChange;
  }

  open() {
    this.area.value = this.chat.record.system;
    this.area.disabled = this.chat.readOnly;
    this.node.open = false;
    this.#summary();
  }

  #summary() {
    setText(this.words, this.area.value.trim().split('\n')[0].slice(0, 100) || say('system.none'));
  }

  #items() {
    const use = (text) => { this.area.value = text; this.chat.setSystem(text); this.#summary(); this.onChange(); };
    const saved = presetsOf('system');
    return [
      ...saved.map((preset) => ({ label: preset.name, run: () => use(preset.text) })),
      saved.length ? null : undefined,
      { label: say('preset.save'), icon: 'plus', run: async () => { const name = await promptDialog(say('preset.save'), say('name')); if (name) savePreset({ name, kind: 'system', text: this.area.value }); } },
      ...saved.map((preset) => ({ label: say('preset.delete', { name: preset.name }), icon: 'bin', danger: true, run: () => deletePreset(preset.id) })),
    ].filter((item) => item !== undefined);
  }
}
