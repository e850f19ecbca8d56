// Numbers in words, with the unit in which they are at least 1; round numbers for an axis.

const SECONDS = [
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "µs"],
  [1e-9, "ns"],
];
const BYTES = [
  [1e12, "TB"],
  [1e9, "GB"],
  [1e6, "MB"],
  [1e3, "KB"],
  [1, "B"],
];

/** Three digits, or all of those before the point. */
function digits(value) {
  if (value === 0) return 0;
  return value >= 999.5 ? Math.round(value) : Number(value.toPrecision(3));
}

function scaled(value, units) {
  const [size, unit] = units.find(([each]) => Math.abs(value) >= each * 0.9995) ?? units.at(-1);
  return `${digits(value / size)} ${unit}`;
}

export const seconds = (value) => scaled(value, SECONDS);

/** A time in the unit of the whole it is part of, so that such times add up; in its own where it is next to nothing. */
export function secondsOf(value, whole) {
  const [size, unit] = SECONDS.find(([each]) => whole >= each * 0.9995) ?? SECONDS.at(-1);
  const count = value / size;
  if (value && count < 0.095) return seconds(value);
  return `${count < 9.995 ? count.toFixed(2) : digits(count)} ${unit}`;
}

export const bytes = (value) => scaled(value, BYTES);
export const speed = (value) => `${bytes(value)}/s`;
export const percent = (share) => `${(Math.round(1000 * share) / 10 || 0).toFixed(1)} %`;

/** Round numbers from 0 to the end, at 1, 2 or 5 times a power of ten. */
export function ticks(end, most = 8) {
  if (!(end > 0)) return [0];
  const rough = end / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999999);
  return Array.from({ length: Math.floor(end / step + 1e-9) + 1 }, (_, at) => at * step);
}
