// The person's settings on this device, and how they look on the page. Kept in local storage, because
// theme and sizes must be known before the first paint.

import { Cell } from './cell.js';

const SETTINGS_KEY = 'pagella.settings';

export const SETTINGS_DEFAULT = {
  theme: 'system', textSize: 16, measure: 46, enterSends: true, openReasoning: false, announce: true, announceText: true, palette: 1,
  listOpen: true, sideOpen: false, listWidth: 272, sideWidth: 332, modelTitles: false, shortcuts: {}, loadOptions: {}, samplersForNew: {}, raw: false, serverCopy: false,
};

function readSettings() {
  try {
    const stored = JSON.parse(localStorage.getItem(SETTINGS_KEY) ?? '{}');
    const known = Object.entries(stored).filter(([key, value]) => typeof value === typeof SETTINGS_DEFAULT[key]);
    return { ...SETTINGS_DEFAULT, ...Object.fromEntries(known) };
  } catch {
    return { ...SETTINGS_DEFAULT };
  }
}

export const settings = new Cell(readSettings());

export function applySettings() {
  settings.watch((now) => {
    const root = document.documentElement;
    root.dataset.theme = now.theme;
    root.style.setProperty('--text-size', `${now.textSize}px`);
    root.style.setProperty('--measure', `${now.measure}rem`);
    root.style.setProperty('--list-width', `${now.listWidth}px`);
    root.style.setProperty('--side-width', `${now.sideWidth}px`);
    try {
      localStorage.setItem(SETTINGS_KEY, JSON.stringify(now));
    } catch {
      // Storage refused (private window): settings last as long as the page.
    }
  });
}

/** Unsent text, kept at every keystroke so that nothing can lose it. */
export const drafts = {
  read: (id) => { try { return localStorage.getItem(`pagella.draft.${id}`) ?? ''; } catch { return ''; } },
  write: (id, text) => {
    try {
      if (text) localStorage.setItem(`pagella.draft.${id}`, text);
      else localStorage.removeItem(`pagella.draft.${id}`);
    } catch {
      // Full or refused: the text is still in its field.
    }
  },
};
