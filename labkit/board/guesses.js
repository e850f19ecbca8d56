"use strict";
// Where the poll's bars stand; page.js draws them. Places are shares of the axis, 0 at its left end and 1 at its right.

const MOST_BARS = 12;
const MOST_STEPS = 40; // between the least guess and the largest, for each value to have a bar of its own
const SPREAD = 50; // the axis is logarithmic beyond it

const counted = (values) => {
  const counts = new Map();
  for (const each of values) counts.set(each, (counts.get(each) ?? 0) + 1);
  return [...counts];
};
const readable = (value) =>
  typeof value === "number" ? Number(value.toPrecision(3)).toLocaleString("en") : String(value);

/** Numbers on a line of numbers, behind them a place for each of the commonest words and flags.

Returns bars `{ label, count, at, wide }`, ticks `{ label, at }`, and `place`, where a value lies (null for nowhere).
*/
function layout(values) {
  const numbers = values.filter((each) => typeof each === "number").sort((one, other) => one - other);
  const words = counted(values.filter((each) => typeof each !== "number"))
    .map(([word, count]) => [String(word), count])
    .sort((one, other) => other[1] - one[1]);
  const rest = words.splice(MOST_BARS).reduce((sum, [, count]) => sum + count, 0);
  if (rest) words.push(["other words", rest]);
  const line = numbers.length ? lineOf(numbers) : null;
  const slots = line ? line.slots + (words.length ? 0.6 : 0) : 0;
  const slot = 1 / (slots + words.length);
  const share = line ? line.slots * slot : 0;
  const atWord = (index) => (slots + index + 0.5) * slot;
  const bars = (line?.bars ?? []).map((bar) => ({ ...bar, at: bar.at * share, wide: bar.wide * share }));
  bars.push(...words.map(([label, count], at) => ({ label, count, at: atWord(at), wide: slot })));
  const ticks = (line ? ticksOf(line, share) : []).map((tick) => ({ ...tick, at: tick.at * share }));
  ticks.push(...words.map(([label], at) => ({ label, at: atWord(at) })));
  const place = (value) => {
    if (typeof value === "number") return line && Math.max(0, Math.min(share, line.place(value) * share));
    const at = words.findIndex(([label]) => label === String(value));
    return at < 0 ? null : atWord(at);
  };
  return { bars, ticks, place };
}

/** The line of numbers, sorted: its bars, how many slots it asks for, and where a number lies on it. */
function lineOf(numbers) {
  const [low, high] = [numbers[0], numbers.at(-1)];
  const isLog = low > 0 && high / low > SPREAD;
  const to = isLog
    ? (x) => (x > 0 ? Math.log10(x) : -Infinity)
    : (x) => x / (Math.max(Math.abs(low), Math.abs(high)) || 1);
  const span = to(high) - to(low);
  const each = counted(numbers);
  const gaps = each.slice(1).map(([value], at) => to(value) - to(each[at][0]));
  const step = gaps.length ? Math.min(...gaps) : 1;
  if (span <= step * MOST_STEPS) {
    const slots = span / step + 1; // half a bar stands out at either end
    const place = (value) => ((to(value) - to(low)) / step + 0.5) / slots;
    const bars = each.map(([value, count]) => ({
      label: String(value),
      count,
      at: place(value),
      wide: 1 / slots,
      isValue: true,
    }));
    const guessed = each.map(([value]) => value);
    return { bars, low, high, isLog, slots: Math.max(1, Math.min(slots, 3 * MOST_BARS)), place, guessed };
  }
  const place = (value) => (to(value) - to(low)) / span;
  const counts = Array.from({ length: MOST_BARS }, () => 0);
  for (const value of numbers) counts[Math.min(MOST_BARS - 1, Math.floor(place(value) * MOST_BARS))] += 1;
  const begins = (at) => to(low) + (at * span) / MOST_BARS;
  const from = (x) => (isLog ? 10 ** x : x * Math.max(Math.abs(low), Math.abs(high)));
  const bars = counts.map((count, at) => ({
    label: readable(Number(from(begins(at)).toPrecision(2))),
    count,
    at: (at + 0.5) / MOST_BARS,
    wide: 1 / MOST_BARS,
  }));
  return { bars, low, high, isLog, slots: MOST_BARS, place, guessed: [] };
}

/** Round numbers along the line, as many as their labels leave room for in this share of the axis. */
function ticksOf(line, share) {
  const { low, high, isLog, place } = line;
  if (low === high) return [{ label: readable(low), at: place(low) }];
  for (const most of [9, 7, 5, 4, 3, 2]) {
    const made = isLog ? decades(low, high, most) : round(low, high, most);
    const ticks = made.map((value) => ({ label: readable(value), at: place(value) }));
    const needs = Math.max(...ticks.map(({ label }) => label.length)) * 0.026 + 0.03; // of the axis, at 26 px of 620
    const isWide = ticks.slice(1).every((tick, at) => (tick.at - ticks[at].at) * share >= needs);
    if (ticks.length && isWide) return withGuesses(line, ticks, share);
  }
  return [low, high].map((value) => ({ label: readable(value), at: place(value) }));
}

/** The same ticks, and the least and the largest guess and then the others where their labels have room beside them. */
function withGuesses({ low, high, place, guessed }, ticks, share) {
  const all = [...ticks];
  for (const value of [low, high, ...guessed]) {
    const mine = { label: readable(value), at: place(value) };
    const isFree = all.every(
      ({ label, at }) => Math.abs(at - mine.at) * share >= (label.length + mine.label.length) * 0.012 + 0.012,
    );
    if (isFree) all.push(mine);
  }
  return all.sort((one, other) => one.at - other.at);
}

function round(low, high, most) {
  const rough = high / most - low / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, at) => (first + at) * step);
}

function decades(low, high, most) {
  const powers = [];
  for (let at = Math.floor(Math.log10(low)); 10 ** at <= high; at += 1) powers.push(10 ** at);
  const fine = powers.flatMap((power) => [power, 2 * power, 5 * power]);
  const within = (all) => all.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  if (within(fine).length <= most) return within(fine);
  const every = Math.ceil(within(powers).length / most) || 1;
  return within(powers).filter((_, at) => at % every === 0);
}

/** The middle one of at least three numbers; undefined where there are fewer, or words among them. */
function middle(values) {
  if (values.length < 3 || values.some((each) => typeof each !== "number")) return undefined;
  return values.toSorted((one, other) => one - other)[Math.floor((values.length - 1) / 2)];
}

globalThis.guesses = { layout, middle, readable };
