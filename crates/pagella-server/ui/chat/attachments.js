// Pictures and texts that go with a message: taken from files, paste or drop, made small enough here.

import { el } from '../page/element.js';

/** The server's pixel limit is 40 MP; models look at far fewer, so we send at most this. */
const IMAGE_SIDE_MAX = 2048;
const IMAGE_COUNT_MAX = 16;
const TEXT_BYTES_MAX = 2 * 1024 * 1024;
/** Pasted text above this becomes an attachment. */
export const PASTE_CHARS_MAX = 2500;

/** What a file dialog offers; pictures only to models that take them. */
export const acceptedFiles = ({ images }) => (images ? '' : 'text/*,.json,.md,.csv,.log,.xml,.yaml,.yml,.toml,.js,.ts,.py,.rs,.c,.h,.cpp,.java,.go,.sh,.sql,.tex');

/** A file as an attachment, or an error sentence. */
export async function readAttachmentFile(file, { images }) {
  if (file.type.startsWith('image/')) {
    if (!images) throw new Error('the loaded model does not take pictures');
    return { kind: 'image', name: file.name, url: await shrinkImage(file) };
  }
  if (file.size > TEXT_BYTES_MAX) throw new Error(`${file.name} is larger than 2 MiB`);
  const text = await file.text();
  if (text.includes('\u0000')) throw new Error(`${file.name} is not a text file`);
  return { kind: 'text', name: file.name, text };
}

export const tooManyImages = (attachments) => attachments.filter((a) => a.kind === 'image').length >= IMAGE_COUNT_MAX;

/** Draws the picture into the limit; this also drops its metadata. */
async function shrinkImage(file) {
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, IMAGE_SIDE_MAX / Math.max(bitmap.width, bitmap.height));
  const canvas = el('canvas', { width: Math.max(1, Math.round(bitmap.width * scale)), height: Math.max(1, Math.round(bitmap.height * scale)) });
  canvas.getContext('2d').drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  const isPhoto = file.type === 'image/jpeg' || file.size > 1024 * 1024;
  return canvas.toDataURL(isPhoto ? 'image/jpeg' : 'image/png', 0.9);
}
