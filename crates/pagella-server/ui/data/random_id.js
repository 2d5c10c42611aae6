// Names for new records. Not `crypto.randomUUID`: browsers offer it on secure origins only, and a server
// on the local network is usually reached by plain http.

const ID_ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';

/** Sorts by time of making (milliseconds, base 32), then 80 random bits. */
export function randomId(now_ms = Date.now()) {
  let stamp = '';
  for (let rest = now_ms, i = 0; i < 9; i++) {
    stamp = ID_ALPHABET[rest % 32] + stamp;
    rest = Math.floor(rest / 32);
  }
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return stamp + Array.from(bytes, (byte) => ID_ALPHABET[byte & 31]).join('');
}
