// Numbers, sizes, times and dates as people read them, by the browser's locale.

const integerFormat = new Intl.NumberFormat();
const oneDigitFormat = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const twoDigitFormat = new Intl.NumberFormat(undefined, { maximumFractionDigits: 2 });
const compactFormat = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 });
const timeFormat = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const dayFormat = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });
const fullDateFormat = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

export const formatBits = (bits) => (isNumber(bits) ? `${twoDigitFormat.format(bits)} bpw` : null);

export const formatCount = (n) => (isNumber(n) ? integerFormat.format(n) : '–');

export const formatCompact = (n) => (isNumber(n) ? (n < 1000000 ? integerFormat.format(n) : compactFormat.format(n)) : '–');

/** Tokens per second: one digit below 100, none above. */
export const formatRate = (n) => (isNumber(n) ? (n < 100 ? oneDigitFormat.format(n) : integerFormat.format(Math.round(n))) : '–');

export const formatPercent = (share) => (isNumber(share) ? `${Math.round(share * 100)} %` : '–');

export function formatBytes(bytes) {
  if (!isNumber(bytes)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? integerFormat.format(Math.round(value)) : oneDigitFormat.format(value)} ${units[unit]}`;
}

export function formatSeconds(seconds) {
  if (!isNumber(seconds)) return '–';
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${oneDigitFormat.format(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Today's as time, this year's as day. */
export function formatWhen(time_ms) {
  const date = new Date(time_ms);
  return date.toDateString() === new Date().toDateString() ? timeFormat.format(date) : dayFormat.format(date);
}

export const formatDate = (time_ms) => fullDateFormat.format(new Date(time_ms));

/** A probability: enough digits to tell small ones apart. */
export function formatProbability(p) {
  if (!isNumber(p)) return '–';
  if (p >= 0.1) return `${(p * 100).toFixed(0)} %`;
  if (p >= 0.001) return `${(p * 100).toFixed(1)} %`;
  return p > 0 ? `${(p * 100).toPrecision(1)} %` : '0 %';
}

/** A number in a control: at most four digits behind the point, no grouping. */
export const formatPlain = (n) => String(Math.round(n * 10000) / 10000);
