// The panel of all generation parameters, made from the table. Shows for each value where it comes from;
// only what the person changed is sent, and the panel shows exactly that.

import { el, fill, setAttribute, setText } from '../page/element.js';
import { Cell } from '../page/cell.js';
import { button, field, select } from '../page/controls.js';
import { chooseFiles, copyText, saveFile } from '../page/clipboard.js';
import { promptDialog } from '../page/dialog.js';
import { formatPlain } from '../page/format.js';
import { openMenu } from '../page/menu.js';
import { settings } from '../page/settings.js';
import { showError, toast } from '../page/toast.js';
import { say } from '../page/words.js';
import { getJson, postJson, routeUrl } from '../net/api.js';
import { connection, currentModel } from '../net/connection.js';
import { deletePreset, presetsOf, savePreset } from '../data/preset_store.js';
import { CodeView } from '../render/code_view.js';
import { SAMPLER_GROUPS, SAMPLER_TABLE, setSamplerTable } from './sampler_table.js';
import { checkSampler, cleanSamplers, curlLine, escapeLine, isNeutral, samplerConflict, samplerFields, samplerOrigin } from './sampler_values.js';

/** What server preset and model say, for "where does this value come from". */
const samplerSources = new Cell({ preset: {}, presetName: null, presetNames: [], model: {} });

/** Asks the server which parameters there are; before any panel is made. A server that does not answer is told of by the dot; the page starts all the same. */
export async function loadSamplerTable() {
  const table = await getJson('v1/sampling/parameters').catch(() => null);
  if (table) setSamplerTable(table);
}

export async function refreshSamplerSources() {
  const overrides = await getJson('v1/sampling/overrides').catch(() => ({}));
  const props = await getJson('props').catch(() => ({}));
  samplerSources.value = { preset: overrides.overrides ?? {}, presetName: overrides.selected_preset ?? null, presetNames: overrides.presets ?? [], model: props.default_generation_settings?.params ?? {} };
}

export class SamplerPanel {
  #controls = new Map();
  /** Which groups were open when the filter was first typed into; null while nothing is looked for. */
  #openBefore = null;
  values = {};

  /** `onChange(values)` after each change; `route` is 'chat' or 'completions'; `requestBody()` gives the rest of the request. */
  constructor({ route, onChange, requestBody }) {
    Object.assign(this, { route, onChange, requestBody });
    this.conflict = el('p.field-error', { role: 'alert', hidden: true });
    this.json = new CodeView('json');
    this.curl = new CodeView('shell');
    const menu = button({ label: say('sampler.presets'), icon: 'list', showLabel: true, variant: 'plain', 'aria-haspopup': 'menu', onClick: () => openMenu(menu, this.#presetItems()) });
    this.reset = button({ label: say('sampler.resetAll'), variant: 'link', onClick: () => this.#set({}) });
    this.filter = el('input.list-search', { type: 'search', placeholder: say('sampler.filter'), 'aria-label': say('sampler.filter'), on: { input: () => this.#applyFilter() } });
    this.groups = SAMPLER_GROUPS.map(([id, title]) => this.#group(id, title));
    this.wire = el('details.sampler-wire', { on: { toggle: () => this.#drawWire() } }, el('summary', null, say('sampler.wire')), this.json.node, this.curl.node);
    this.node = el('div.sampler-panel', null, el('div.panel-head', null, el('h2', null, say('sampler.title')), this.reset), el('div.panel-row', null, menu), this.filter, this.conflict, this.groups, this.wire);
    samplerSources.watch(() => this.#draw());
    currentModel.watch(() => { if (connection.value.state === 'ok') refreshSamplerSources(); }, { now: false });
  }

  /** Shows the values of another conversation or notebook. */
  open(values) {
    this.values = { ...values };
    this.#draw();
  }

  #set(values) {
    this.values = values;
    this.#draw();
    this.onChange(values);
  }

  #setOne(entry, raw) {
    const control = this.#controls.get(entry.name);
    const { value, error } = checkSampler(entry, raw);
    control.field.showError(error);
    if (error) return;
    const next = { ...this.values };
    if (value === undefined) delete next[entry.name];
    else next[entry.name] = value;
    this.values = next;
    this.#drawOne(entry);
    this.#drawSummary();
    this.onChange(next);
  }

  #group(id, title) {
    const entries = SAMPLER_TABLE.filter((entry) => entry.group === id && !(entry.chatOnly && this.route !== 'chat'));
    const count = el('span.group-count');
    const node = el('details.sampler-group', { open: id === 'basic', data: { group: id } }, el('summary', null, el('span', null, title), count), entries.map((entry) => this.#control(entry)));
    node.count = count;
    node.entries = entries;
    if (entries.length === 0) node.hidden = true;
    return node;
  }

  #control(entry) {
    const input = this.#input(entry);
    const shown = field(entry.name, input.main, { help: entry.help });
    const origin = el('span.sampler-origin');
    const reset = button({ label: say('sampler.reset', { name: entry.name }), icon: 'undo', onClick: () => { this.#setOne(entry, undefined); input.main.focus(); } });
    const head = el('div.sampler-head', null, shown.firstChild, origin, reset);
    shown.prepend(head);
    if (input.row) {
      input.main.before(input.row);
      input.row[input.mainFirst ? 'prepend' : 'append'](input.main);
    }
    shown.classList.add('sampler');
    shown.dataset.name = entry.name;
    this.#controls.set(entry.name, { field: shown, input, origin, reset });
    return shown;
  }

  #input(entry) {
    if (entry.kind === 'number' || entry.kind === 'int') return this.#numberInput(entry);
    if (entry.kind === 'bool') {
      const main = select([['', say('sampler.default')], ['true', say('on')], ['false', say('off')]], '', (value) => this.#setOne(entry, value === '' ? undefined : value === 'true'));
      return { main, show: (value, changed) => { main.value = changed ? String(value) : ''; } };
    }
    if (entry.kind === 'choice') {
      const main = select([['', say('sampler.default')], ...entry.choices.map((choice, i) => [String(choice), entry.labels?.[i] ?? String(choice)])], '', (value) => this.#setOne(entry, value === '' ? undefined : entry.choices.find((choice) => String(choice) === value)));
      return { main, show: (value, changed) => { main.value = changed ? String(value) : ''; } };
    }
    return this.#textControl(entry);
  }

  #numberInput(entry) {
    const main = el('input.sampler-number', { type: 'text', inputmode: entry.kind === 'int' && entry.min >= 0 ? 'numeric' : 'decimal', autocomplete: 'off', on: {
      change: () => this.#setOne(entry, main.value.trim() === '' || main.value === entry.offWord ? undefined : main.value),
      focus: () => main.select(),
      keydown: (event) => {
        if (event.key !== 'ArrowUp' && event.key !== 'ArrowDown') return;
        event.preventDefault();
        this.#step(entry, (event.key === 'ArrowUp' ? 1 : -1) * entry.step * (event.shiftKey ? 10 : 1));
      },
    } });
    if (!entry.slider) return { main, show: (value) => { main.value = value === null ? '' : this.#numberText(entry, value); } };
    const slider = el('input.sampler-slider', { type: 'range', min: entry.slider[0], max: entry.slider[1], step: entry.step, 'aria-label': entry.name, on: { input: () => this.#setOne(entry, Number(slider.value)) } });
    return { main, row: el('div.sampler-row', null, slider), show: (value) => {
      const neutral = entry.neutral ?? entry.slider[0];
      slider.value = String(value ?? neutral);
      const share = (Number(slider.value) - entry.slider[0]) / (entry.slider[1] - entry.slider[0]);
      slider.style.setProperty('--share', `${share * 100}%`);
      main.value = this.#numberText(entry, value);
      setAttribute(slider, 'aria-valuetext', main.value);
    } };
  }

  #numberText(entry, value) {
    if (value === null || value === undefined) return entry.offWord ?? '';
    return entry.offWord && isNeutral(entry, value) ? entry.offWord : formatPlain(value);
  }

  #step(entry, by) {
    const { value } = samplerOrigin(entry, this.values, samplerSources.value);
    const next = Math.round(((value ?? entry.slider?.[0] ?? 0) + by) * 1e6) / 1e6;
    this.#setOne(entry, Math.min(entry.max, Math.max(entry.min, next)));
  }

  #textControl(entry) {
    const long = entry.kind === 'code' || entry.kind === 'json';
    const main = el(entry.kind === 'ids' ? 'input' : 'textarea', { rows: long ? 4 : 2, spellcheck: 'false', autocomplete: 'off', on: { change: () => this.#setOne(entry, main.value) } });
    const show = (value, changed) => {
      if (document.activeElement === main) return;
      main.value = !changed ? '' : entry.kind === 'list' ? value.map(escapeLine).join('\n') : entry.kind === 'ids' ? value.join(', ') : entry.kind === 'json' ? JSON.stringify(value, null, 2) : value;
    };
    if (!entry.exclusive) return { main, show };
    const check = button({ label: say('sampler.check'), variant: 'plain', onClick: () => this.#checkConstraint(entry) });
    return { main, row: el('div.sampler-text', null, check), mainFirst: true, show };
  }

  /** Compiles a constraint on the server by asking for one token with it. */
  async #checkConstraint(entry) {
    const control = this.#controls.get(entry.name);
    this.#setOne(entry, control.input.main.value);
    if (this.values[entry.name] === undefined) return;
    try {
      await postJson('v1/completions', { prompt: 'x', max_tokens: 1, [entry.name]: this.values[entry.name] });
      control.field.showError(null);
      toast(say('sampler.valid', { name: entry.name }));
    } catch (error) {
      control.field.showError(`${error.message}${error.details?.offset !== undefined ? ` (${say('sampler.offset', { n: error.details.offset })})` : ''}`);
    }
  }

  #draw() {
    // A value that is being typed is the person's until they leave its field.
    for (const entry of SAMPLER_TABLE) if (this.#controls.has(entry.name) && document.activeElement !== this.#controls.get(entry.name).input.main) this.#drawOne(entry);
    this.#drawSummary();
  }

  #drawOne(entry) {
    const control = this.#controls.get(entry.name);
    const { value, origin, forced } = samplerOrigin(entry, this.values, samplerSources.value);
    control.input.show(value, origin === 'request');
    control.field.classList.toggle('changed', origin === 'request');
    control.field.classList.toggle('off', entry.offWord === 'off' && isNeutral(entry, value));
    control.reset.hidden = origin !== 'request';
    setText(control.origin, forced ? say('origin.forced') : origin === 'neutral' ? '' : say(`origin.${origin}`));
  }

  #drawSummary() {
    for (const group of this.groups) {
      const n = group.entries.filter((entry) => this.values[entry.name] !== undefined).length;
      setText(group.count, n ? String(n) : '');
    }
    const conflict = samplerConflict(this.values);
    this.conflict.hidden = !conflict;
    if (conflict) setText(this.conflict, say('sampler.conflict', { names: conflict.join(', ') }));
    this.reset.hidden = Object.keys(this.values).length === 0;
    this.#drawWire();
  }

  #drawWire() {
    if (!this.wire.open) return;
    this.json.update(JSON.stringify(samplerFields(this.values, this.route), null, 2));
    const path = this.route === 'chat' ? 'v1/chat/completions' : 'v1/completions';
    this.curl.update(curlLine(routeUrl(path).href, { ...this.requestBody(), ...samplerFields(this.values, this.route) }));
  }

  /** What is looked for is opened; what was open before is open again when nothing is looked for. */
  #applyFilter() {
    const words = this.filter.value.trim().toLowerCase();
    if (words) this.#openBefore ??= this.groups.map((group) => group.open);
    for (const group of this.groups) {
      let any = false;
      for (const node of group.querySelectorAll('.sampler')) {
        node.hidden = words !== '' && !node.textContent.toLowerCase().includes(words);
        any ||= !node.hidden;
      }
      group.hidden = !any;
      if (words) group.open = any;
    }
    if (words) return;
    this.#openBefore?.forEach((open, i) => { this.groups[i].open = open; });
    this.#openBefore = null;
  }

  #presetItems() {
    const own = presetsOf('samplers');
    const server = samplerSources.value.presetName;
    return [
      ...own.map((preset) => ({ label: preset.name, run: () => this.#set({ ...preset.values }) })),
      server ? { label: say('preset.server', { name: server }), run: () => toast(say('preset.serverHelp')) } : undefined,
      own.length || server ? null : undefined,
      { label: say('preset.save'), icon: 'plus', run: () => this.#save() },
      { label: say('sampler.forNew'), icon: 'check', run: () => { settings.patch({ samplersForNew: { ...this.values } }); toast(say('sampler.forNewDone')); } },
      { label: say('preset.import'), icon: 'upload', run: () => this.#importValues() },
      { label: say('preset.export'), icon: 'download', run: () => saveFile('samplers.json', JSON.stringify(this.values, null, 2)) },
      { label: say('sampler.copyJson'), icon: 'copy', run: () => copyText(JSON.stringify(samplerFields(this.values, this.route), null, 2)) },
      own.length ? null : undefined,
      ...own.map((preset) => ({ label: say('preset.rename', { name: preset.name }), icon: 'edit', run: async () => { const name = await promptDialog(say('rename'), say('name'), preset.name); if (name) savePreset({ ...preset, name }); } })),
      ...own.map((preset) => ({ label: say('preset.delete', { name: preset.name }), icon: 'bin', danger: true, run: () => deletePreset(preset.id) })),
    ].filter((item) => item !== undefined);
  }

  async #save() {
    const name = await promptDialog(say('preset.save'), say('name'));
    if (name) await savePreset({ name, kind: 'samplers', values: { ...this.values } });
  }

  async #importValues() {
    try {
      for (const file of await chooseFiles('.json')) {
        if (file.size > 1024 * 1024) throw new Error(say('preset.tooLarge'));
        const { values, skipped } = cleanSamplers(JSON.parse(await file.text()));
        this.#set(values);
        toast(skipped.length ? say('preset.importedSome', { names: skipped.slice(0, 8).join(', ') }) : say('preset.imported'));
      }
    } catch (error) {
      showError(error);
    }
  }

  focusFirst() {
    fill(this.conflict, this.conflict.textContent);
    this.filter.focus();
  }
}
