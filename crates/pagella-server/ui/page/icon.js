// The page's icons: strokes on a 20×20 grid, drawn with the colour of the text around them.

import { svgEl } from './element.js';

const ICON_PATHS = {
  plus: 'M10 4v12M4 10h12',
  send: 'M10 16V4M5 9l5-5 5 5',
  stop: 'M6 6h8v8H6z',
  copy: 'M7 7V4.5A1.5 1.5 0 0 1 8.5 3h7A1.5 1.5 0 0 1 17 4.500v7A1.5 1.5 0 0 1 15.5 13H13M4.5 7h7A1.5 1.5 0 0 1 13 8.500v7A1.5 1.5 0 0 1 11.5 17h-7A1.5 1.5 0 0 1 3 15.500v-7A1.5 1.5 0 0 1 4.5 7z',
  check: 'M4 10.500l4 4 8-9',
  edit: 'M12.5 4.500l3 3L7 16l-4 1 1-4z',
  redo: 'M16 8A6.5 6.5 0 1 0 16.5 11M16.5 3.500V8H12',
  forward: 'M4 5l6 5-6 5zM11 5l6 5-6 5z',
  branch: 'M6 3.500v13M6 13c0-4 8-2 8-6.500M14 6.500v-3M11.5 5L14 3l2.5 2',
  bin: 'M4 6h12M8 6V4h4v2M5.5 6l.8 10.500h7.400L14.5 6M8.5 9v4.500M11.5 9v4.5',
  more: 'M5 10h.01M10 10h.01M15 10h.01',
  left: 'M12 5l-5 5 5 5',
  right: 'M8 5l5 5-5 5',
  down: 'M5 8l5 5 5-5',
  close: 'M5 5l10 10M15 5L5 15',
  search: 'M9 4a5 5 0 1 1 0 10A5 5 0 0 1 9 4zM13 13l4 4',
  list: 'M3 5.500h14M3 10h14M3 14.500h9',
  sliders: 'M4 6h7M15 6h1M4 14h1M9 14h7M13 4v4M7 12v4',
  key: 'M8 8a4 4 0 1 1-4 4 4 4 0 0 1 4-4zM11 9.500L17 3.500M14.5 6l2 2',
  attach: 'M15.5 9.500l-5.8 5.800a3.5 3.5 0 0 1-5-5L11 4a2.3 2.3 0 0 1 3.3 3.300L8 13.600a1.1 1.1 0 0 1-1.6-1.600L12 6.5',
  pin: 'M7 3h6l-1 6 3 3H5l3-3zM10 12v5',
  warn: 'M10 3l8 14H2zM10 8v4M10 14.500h.01',
  info: 'M10 3a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM10 9v5M10 6.500h.01',
  gear: 'M8.4 4.1L8.5 2L11.5 2L11.6 4.1L13 4.7L14.5 3.3L16.7 5.5L15.3 7L15.9 8.4L18 8.5L18 11.5L15.9 11.6L15.3 13L16.7 14.5L14.5 16.7L13 15.3L11.6 15.9L11.5 18L8.5 18L8.4 15.9L7 15.3L5.5 16.7L3.3 14.5L4.7 13L4.1 11.6L2 11.5L2 8.5L4.1 8.4L4.7 7L3.3 5.5L5.5 3.3L7 4.7zM10 7.3a2.7 2.7 0 1 1 0 5.4 2.7 2.7 0 0 1 0-5.4z',
  wrap: 'M3 5h14M3 10h11a2.5 2.5 0 0 1 0 5h-4M12 13l-2 2 2 2M3 15h3',
  expand: 'M4 12v4h4M16 8V4h-4M4 16l5-5M16 4l-5 5',
  eject: 'M4 12l6-7 6 7zM4 16h12',
  download: 'M10 3v10M6 9l4 4 4-4M4 16.500h12',
  upload: 'M10 14V4M6 8l4-4 4 4M4 16.500h12',
  play: 'M6 4l10 6-10 6z',
  pause: 'M7 4v12M13 4v12',
  step: 'M5 4l7 6-7 6zM15 4v12',
  undo: 'M4 8h8a4.5 4.5 0 0 1 0 9H8M7 4.500L3.5 8 7 11.5',
  moon: 'M16 12A6.5 6.5 0 0 1 8 4a6.5 6.5 0 1 0 8 8z',
  tree: 'M4 4h5M4 4v12M4 10h6M4 16h6M13 10h3M13 16h3',
  columns: 'M4 4h12v12H4zM10 4v12',
};

/** Decorative: the button around it carries the name. */
export function icon(name) {
  const path = svgEl('path', { d: ICON_PATHS[name] });
  return svgEl('svg', { class: `icon icon-${name}`, viewBox: '0 0 20 20', 'aria-hidden': 'true', focusable: 'false' }, path);
}
