// The frame around the views: header, side panels that fold and resize, sheets on narrow screens, banner.

import { el, fill, setAttribute, setText } from '../page/element.js';
import { button } from '../page/controls.js';
import { formatPercent } from '../page/format.js';
import { icon } from '../page/icon.js';
import { settings } from '../page/settings.js';
import { say } from '../page/words.js';
import { checkConnection, connection, currentModel, loadShare, modelState } from '../net/connection.js';
import { keysFor } from './shortcuts.js';
import { openKeyDialog } from './key_dialog.js';

export const VIEW_NAMES = ['chat', 'notebook', 'engine', 'models'];
const PANEL_PX_MIN = 200;
const PANEL_PX_MAX = 560;
const isNarrow = () => matchMedia('(max-width: 800px)').matches;

export class Frame {
  /** How far panels and views were scrolled when their view was left, by view. */
  #scrolled = new Map();

  /** `onModel(anchor)` opens the model menu, `onView(name)` a view where it was left. */
  constructor({ onModel, onSettings, onView }) {
    const follow = (name) => (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      onView(name);
    };
    this.links = new Map(VIEW_NAMES.map((name, i) => [name, el('a.view-link', { href: `#/${name}`, title: `${say(`view.${name}`)} (Alt+${i + 1})`, on: { click: follow(name) } }, say(`view.${name}`))]));
    this.modelName = el('span.model-button-name');
    this.modelButton = el('button.model-button', { type: 'button', 'aria-haspopup': 'dialog', on: { click: () => onModel(this.modelButton) } }, el('span.state-dot', { 'aria-hidden': 'true' }), this.modelName, icon('down'));
    this.state = el('span.connection-state', { role: 'status' });
    this.keyButton = button({ label: say('key.title'), icon: 'key', onClick: openKeyDialog });
    this.listButton = button({ label: say('list.toggle'), icon: 'list', keys: keysFor('list.toggle'), 'aria-controls': 'list-panel', onClick: () => this.toggle('list') });
    this.sideButton = button({ label: say('side.toggle'), icon: 'sliders', keys: keysFor('side.toggle'), 'aria-controls': 'side-panel', onClick: () => this.toggle('side') });
    this.header = el('header.page-header', null, this.listButton, el('h1.brand', null, 'Pagella'), el('nav.views', { 'aria-label': say('views') }, [...this.links.values()]),
      el('div.header-space'), this.modelButton, this.state, this.keyButton, button({ label: say('settings.title'), icon: 'gear', onClick: onSettings }), this.sideButton);
    this.list = el('aside.panel.list-side', { id: 'list-panel', 'aria-label': say('list.panel') });
    this.side = el('aside.panel.sampler-side', { id: 'side-panel', 'aria-label': say('sampler.title') });
    this.main = el('main', { id: 'main', tabIndex: -1 });
    this.banner = el('div.banner', { role: 'alert', hidden: true });
    this.scrim = el('div.scrim', { hidden: true, on: { click: () => this.closeSheets() } });
    this.node = el('div.page', null, el('a.skip-link', { href: '#main', on: { click: (event) => { event.preventDefault(); this.main.focus(); } } }, say('skip')), this.header, this.banner,
      el('div.panes', null, this.list, this.#grip('list'), this.main, this.#grip('side'), this.side, this.scrim));
    settings.watch(() => this.#layout());
    addEventListener('resize', () => this.#layout());
    this.#watchState();
  }

  /** A view's parts into their places, scrolled as they were: nodes that leave the page forget it. */
  show(name, view) {
    const scrollers = [this.main.firstElementChild, this.list, this.side];
    if (this.shownName) this.#scrolled.set(this.shownName, scrollers.map((node) => node?.scrollTop ?? 0));
    this.shownName = name;
    for (const [key, link] of this.links) setAttribute(link, 'aria-current', key === name ? 'page' : null);
    fill(this.main, view.main);
    fill(this.list, view.list ?? null);
    fill(this.side, view.side ?? null);
    this.hasList = Boolean(view.list);
    this.hasSide = Boolean(view.side);
    this.sheet = null;
    this.#layout();
    const [main, list, side] = this.#scrolled.get(name) ?? [0, 0, 0];
    Object.assign(this.main.firstElementChild, { scrollTop: main });
    Object.assign(this.list, { scrollTop: list });
    Object.assign(this.side, { scrollTop: side });
  }

  isOpen(which) {
    return isNarrow() ? this.sheet === which : settings.value[`${which}Open`];
  }

  toggle(which) {
    if (isNarrow()) {
      this.sheet = this.sheet === which ? null : which;
      this.#layout();
      if (this.sheet) this[which].querySelector('input, button, a')?.focus();
    } else settings.patch({ [`${which}Open`]: !settings.value[`${which}Open`] });
  }

  /** Closes an open sheet; says whether there was one. */
  closeSheets() {
    if (!this.sheet) return false;
    const which = this.sheet;
    this.sheet = null;
    this.#layout();
    this[`${which}Button`].focus();
    return true;
  }

  #layout() {
    const list = Boolean(this.hasList) && this.isOpen('list');
    const side = Boolean(this.hasSide) && this.isOpen('side');
    this.list.hidden = !list;
    this.side.hidden = !side;
    // Out of sight and reach, but in their place: nothing beside them moves.
    this.listButton.classList.toggle('absent', !this.hasList);
    this.sideButton.classList.toggle('absent', !this.hasSide);
    setAttribute(this.listButton, 'aria-expanded', String(list));
    setAttribute(this.sideButton, 'aria-expanded', String(side));
    this.scrim.hidden = !(isNarrow() && (list || side));
  }

  /** Drag or arrow keys change a panel's width. */
  #grip(which) {
    const name = `${which}Width`;
    const sign = which === 'list' ? 1 : -1;
    const set = (px) => settings.patch({ [name]: Math.round(Math.max(PANEL_PX_MIN, Math.min(PANEL_PX_MAX, px))) });
    const grip = el('div.grip', { role: 'separator', tabIndex: 0, 'aria-orientation': 'vertical', 'aria-label': say('grip'), class: which, 'aria-valuemin': PANEL_PX_MIN, 'aria-valuemax': PANEL_PX_MAX, on: {
      pointerdown: (event) => {
        grip.setPointerCapture(event.pointerId);
        const from = { x: event.clientX, width: settings.value[name] };
        const move = (e) => set(from.width + sign * (e.clientX - from.x));
        grip.addEventListener('pointermove', move);
        grip.addEventListener('pointerup', () => grip.removeEventListener('pointermove', move), { once: true });
      },
      keydown: (event) => {
        const by = { ArrowLeft: -16, ArrowRight: 16 }[event.key];
        if (by) { event.preventDefault(); set(settings.value[name] + sign * by); }
      },
    } });
    settings.watch((now) => setAttribute(grip, 'aria-valuenow', now[name]));
    return grip;
  }

  #watchState() {
    currentModel.watch(() => this.#drawModel());
    connection.watch((now) => {
      this.#drawModel();
      setText(this.state, now.state === 'ok' ? say(`role.${now.role}`) : say(`connection.${now.state}`));
      this.state.dataset.state = now.state;
      this.#drawBanner(now);
    });
    setInterval(() => this.#drawBanner(connection.value), 1000);
  }

  /** `loading`: the load that this page runs, or null. */
  setLoading(loading) {
    this.loading = loading;
    this.#drawModel();
  }

  #drawModel() {
    const state = modelState(connection.value, currentModel.value, Boolean(this.loading));
    const { health } = connection.value;
    const others = state === 'loading' && health?.model ? say('load.words', { name: health.model.split('/').at(-1), p: formatPercent(loadShare(health.progress)) }) : null;
    const name = this.loading?.words ?? others ?? currentModel.value?.id ?? say(state === 'unknown' ? 'model.menu' : 'model.none');
    const stateWords = [say(`model.state.${state}`), state === 'waiting' ? health?.issues?.[0]?.description : null].filter(Boolean).join(': ');
    this.modelButton.dataset.state = state;
    setText(this.modelName, name.split('/').at(-1));
    setAttribute(this.modelButton, 'aria-label', say('model.button', { name, state: stateWords }));
    setAttribute(this.modelButton, 'title', `${name}, ${stateWords}`);
  }

  #drawBanner({ state, retryAt_ms }) {
    const lost = state === 'lost';
    if (this.banner.hidden === !lost && !lost) return;
    this.banner.hidden = !lost;
    if (!lost) return;
    if (!this.banner.firstChild) fill(this.banner, el('span'), el('span.countdown', { 'aria-hidden': 'true' }), button({ label: say('connection.now'), variant: 'link', onClick: () => checkConnection() }));
    setText(this.banner.firstChild, say('connection.lostLong'));
    setText(this.banner.children[1], say('connection.retry', { n: Math.max(0, Math.ceil((retryAt_ms - Date.now()) / 1000)) }));
  }
}
