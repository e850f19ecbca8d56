// Times, sizes, shares and counts in words; the steps of an axis.

const TIMES = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
  ["ns", 1],
];
const SIZES = [
  ["TB", 1e12],
  ["GB", 1e9],
  ["MB", 1e6],
  ["KB", 1e3],
  ["B", 1],
];
const NOTHING = "–";

/** The largest unit, as [name, size], in which a value is at least 1; the smallest where there is none. */
export const unitOf = (value, units = TIMES) => units.find(([, size]) => value >= size) ?? units.at(-1);

function scaled(value, units) {
  if (!Number.isFinite(value)) return NOTHING;
  const [name, size] = unitOf(Math.abs(value) * 1.0005, units);
  return `${Number((value / size).toPrecision(3))} ${name}`;
}

/** A time in words: "12.3 ms". */
export const timeText = (ns) => scaled(ns, TIMES);

/** A size in words: "1.5 MB". */
export const bytesText = (size) => scaled(size, SIZES);

export const speedText = (speed) => (Number.isFinite(speed) ? `${bytesText(speed)}/s` : NOTHING);

export const percentText = (share) => (Number.isFinite(share) ? `${Number((100 * share).toPrecision(3))} %` : NOTHING);

/** A number of things in words: "1 event". */
export const countText = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;

/** A change in words, in the unit of the two numbers; of shares in points. */
export function changeText(text, change) {
  const size = Math.abs(change);
  const sign = signOf(change);
  if (Number.isFinite(size) && text === percentText) return `${sign}${(100 * size).toFixed(1)} points`;
  return sign + text(size);
}

function signOf(change) {
  if (change > 0) return "+";
  return change < 0 ? "−" : "";
}

/** Words about a run, after its name where it stands beside another. */
export const named = ({ name }, words, mark = " ") => [name, words].filter((each) => each !== "").join(mark);

/** How long a run took. */
export const lasted = ({ measured, span }) => (measured ? measured[1] - measured[0] : span);

/** A ratio as it is said: 3.5, or 1.08 where a tenth would hide it. */
const timesText = (ratio) => String(Number(ratio.toPrecision(ratio < 1.95 ? 3 : 2)));

/** Names of two runs within a sentence, which begins with the second: where one has several words, both in quotes. */
function namesIn([name, second]) {
  if (`${name}${second}`.includes(" ")) return [`“${name}”`, `“${second}”`];
  return [name, second.slice(0, 1).toUpperCase() + second.slice(1)];
}

/** What one run shows; of two how long they take beside each other, and the cause of that. */
export function titleOf([run, other], cause = "") {
  if (!other) return named(run, run.title, ": ");
  const ratio = lasted(other) / lasted(run);
  if (!Number.isFinite(ratio) || !ratio) return [run, other].map((each) => named(each, each.title, ": ")).join("; ");
  const [one, theOther] = namesIn([run.name, other.name]);
  if (Math.abs(ratio - 1) < 0.005) return `${theOther} takes as long as ${one}`;
  if (ratio < 1) return `${theOther} is ${timesText(1 / ratio)} times faster than ${one}${cause}`;
  return `${theOther} takes ${timesText(ratio)} times as long as ${one}${cause}`;
}

/** The 1-2-5 step that puts at most `most` ticks on a length. */
export function tickStep(length, most) {
  const least = length / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= least * (1 - 1e-9));
}
