"use strict";
// What the poll's bars are made of; page.js draws them.

/** Everybody's guesses without names: numbers first, in up to 12 bins, then the 12 commonest words and flags. */
function bars(values) {
  const numbers = numbersOf(values);
  const words = counted(values.filter((each) => typeof each !== "number")).sort((one, other) => other[1] - one[1]);
  const rest = words.splice(MOST_BARS).reduce((sum, [, count]) => sum + count, 0);
  return [...binned(numbers), ...words, ...(rest ? [["other words", rest]] : [])];
}

function counted(values) {
  const counts = new Map();
  for (const each of values) counts.set(each, (counts.get(each) ?? 0) + 1);
  return [...counts].map(([value, count]) => [String(value), count]);
}

const MOST_BARS = 12;
const MOST_PLACES = 20; // of a number line, on which some may be empty
const numbersOf = (values) => values.filter((each) => typeof each === "number").sort((one, other) => one - other);

/** The bins of numbers in order: on a logarithmic axis where they spread over more than two decades. */
function axis(numbers) {
  const isSpread = numbers[0] > 0 && numbers.at(-1) / numbers[0] > 100;
  const to = isSpread ? (x) => (x > 0 ? Math.log10(x) : -Infinity) : (x) => x;
  const low = to(numbers[0]);
  const width = (to(numbers.at(-1)) - low) / MOST_BARS;
  const begins = Array.from({ length: MOST_BARS }, (_, at) => low + at * width);
  return {
    begins: isSpread ? begins.map((begin) => 10 ** begin) : begins,
    bins: (value) => Math.max(0, Math.min(MOST_BARS, (to(value) - low) / width)),
  };
}

/** The places of a number line on which all guesses lie, as [lowest, step, how many]; undefined where that is long. */
function numberLine(numbers) {
  const distinct = [...new Set(numbers)];
  if (distinct.length < 3) return undefined;
  const step = Math.min(...distinct.slice(1).map((each, at) => each - distinct[at]));
  const places = distinct.map((each) => (each - distinct[0]) / step);
  const isLine = places.every((each) => Math.abs(each - Math.round(each)) < 1e-6) && places.at(-1) < MOST_PLACES;
  return isLine ? [distinct[0], step, Math.round(places.at(-1)) + 1] : undefined;
}

function binned(numbers) {
  const line = numberLine(numbers);
  if (line) {
    const [low, step, many] = line;
    const made = Array.from({ length: many }, () => ["", 0]);
    for (const [value, count] of counted(numbers)) made[Math.round((Number(value) - low) / step)] = [value, count];
    return made;
  }
  if (new Set(numbers).size <= MOST_BARS) return counted(numbers);
  const { begins, bins } = axis(numbers);
  const made = begins.map((begin) => [Number(begin.toPrecision(2)).toLocaleString("en"), 0]);
  for (const each of numbers) made[Math.min(MOST_BARS - 1, Math.floor(bins(each)) || 0)][1] += 1;
  return made;
}

/** Where the value that came out falls: between the bars of numbers, on the bar of a word; null where there is none. */
function fallsAt(value, values, made) {
  if (typeof value !== "number") {
    const at = made.findIndex(([label]) => label === String(value));
    return at < 0 ? null : at + 0.5;
  }
  const numbers = numbersOf(values);
  const distinct = [...new Set(numbers)];
  if (!distinct.length) return null;
  const line = numberLine(numbers);
  if (line) return Math.max(0, Math.min(line[2], (value - line[0]) / line[1] + 0.5));
  if (distinct.length > MOST_BARS) return axis(numbers).bins(value);
  const exact = distinct.indexOf(value);
  return exact >= 0 ? exact + 0.5 : distinct.filter((each) => each < value).length;
}

const readable = (value) =>
  typeof value === "number" ? Number(value.toPrecision(3)).toLocaleString("en") : String(value);

globalThis.guesses = { bars, fallsAt, readable };
