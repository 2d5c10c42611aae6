// Which adapters answers have that ask for no others, and how that set changes.

/** Largest magnitude of a scale. */
export const SCALE_MAX = 8;

/** A scale as someone wrote it; null where it is none. */
export function readScale(text) {
  const written = String(text).trim().replace(',', '.');
  const scale = Number(written);
  return written !== '' && Number.isFinite(scale) && Math.abs(scale) <= SCALE_MAX ? scale : null;
}

/** The body of a load that puts one adapter, with a scale, beside those of the default set. */
export function withAdapter(cards, name, scaling) {
  const others = cards.filter((card) => card.default && card.id !== name);
  return { loras: [...others.map((card) => ({ name: card.id, scaling: card.scaling ?? 1 })), { name, scaling }] };
}
