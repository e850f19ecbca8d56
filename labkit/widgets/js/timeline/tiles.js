// What is read first under the sentence: how long, how much of it ranks wait, how much communication nothing hides.

import { element, unbroken } from "./element.js";
import { NOTED } from "./numbers.js";
import { timeText } from "./words.js";

const share = (part) => (Number.isFinite(part) ? `${Math.round(100 * part)} % of the time` : "–");

/** Of one run a share of its time; of two, whose lengths differ, each run's time, as the ranks' mean. */
const part = (ofTime, sum, numRanks, isBeside) => (isBeside ? plainTime(sum / numRanks) : share(ofTime));

/** A time in words; nothing has no unit. */
const plainTime = (ns) => (ns ? timeText(ns) : "0");

/** Label, what a rank does in that time, and how it is read off a run's numbers; undefined where nobody knows. */
const PARTS = [
  [
    "waiting",
    "a rank stands in a call or in wait() and nothing moves",
    ({ blockedShare, blocked, calls, messages, numRanks, waiting }, isBeside) => {
      if (!calls && !messages && !blockedShare) return undefined;
      const ofSome = !isBeside && isSome({ waiting, numRanks });
      return part(blockedShare * (ofSome ? numRanks / waiting.length : 1), blocked, numRanks, isBeside);
    },
  ],
  [
    "exposed communication",
    "bytes move and a rank does not compute",
    ({ exposedOfTime, exposed, communication, bubble, numRanks, window }, isBeside) => {
      const isSome = communication >= NOTED * window * numRanks && Number.isFinite(bubble);
      return isSome ? part(exposedOfTime, exposed, numRanks, isBeside) : undefined;
    },
  ],
];

/** Whether some ranks wait and others do not. */
const isSome = ({ waiting, numRanks }) => waiting.length > 0 && waiting.length < numRanks;

/** Whose waiting is told: of one run that of the ranks that wait, as its title does; else all ranks' mean. */
function whose(label, numbers) {
  const [{ waiting, numRanks }] = numbers;
  if (label !== "waiting" || numbers.length > 1) return meanOf(numbers);
  const took = numbers[0].blocked ? `: ${timeText(numbers[0].blocked / (waiting.length || numRanks))}` : "";
  if (!isSome(numbers[0])) return took + meanOf(numbers);
  if (waiting.length > 4) return `${took}, mean of the ${waiting.length} of ${numRanks} ranks that wait`;
  return took + (waiting.length > 1 ? `, mean of ranks ${waiting.join(", ")}` : `, rank ${waiting[0]}`);
}

/** Whose mean it is: ", mean of 4 ranks", of runs that differ in them ", mean of 4 and 8 ranks"; "" of one rank. */
function meanOf(numbers) {
  const counts = [...new Set(numbers.map(({ numRanks }) => numRanks))];
  return Math.max(...counts) > 1 ? `, mean of ${counts.join(" and ")} ranks` : "";
}

/** Label, title and value of each tile: of one run a value each, of two "797 µs → 225 µs". */
export function tilesOf(numbers, isZoomed, names = []) {
  const isBeside = numbers.length > 1;
  const inView = isZoomed ? " in view" : "";
  const measure = isBeside ? "time" : "share of the time";
  const parts = PARTS.flatMap(([label, title, read]) => {
    const values = numbers.map((each) => read(each, isBeside));
    if (values.every((value) => value === undefined)) return [];
    const value = values.map((each) => each ?? "–").join(" → ");
    return [[`${label}${inView}${whose(label, numbers)}`, `mean over the ranks: ${measure} in which ${title}`, value]];
  });
  const length = numbers.map(({ window }) => timeText(window)).join(" → ");
  const runs = isBeside && names.length && names.every(Boolean) ? `: ${names.join(" → ")}` : "";
  return [[`length${inView}${runs}`, "time in view", length], ...parts];
}

/** Write the tiles of what is in view. */
export function writeTiles(place, numbers, isZoomed, names) {
  const tiles = tilesOf(numbers, isZoomed, names).map(([label, title, value]) =>
    element("div", { title }, element("dd", {}, ...unbroken(value)), element("dt", {}, label)),
  );
  const key = tiles.map((tile) => tile.textContent).join("|");
  if (place.dataset.tiles === key) return;
  place.dataset.tiles = key;
  place.replaceChildren(...tiles);
}
