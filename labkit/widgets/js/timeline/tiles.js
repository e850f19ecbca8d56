// What is read first under the sentence: how long, how long ranks wait, how much communication nothing hides.

import { element, unbroken } from "./element.js";
import { ranksText } from "./layout.js";
import { NOTED } from "./numbers.js";
import { timeText } from "./words.js";

/** A time in words; nothing has no unit. */
const plainTime = (ns, none) => (ns ? timeText(ns) : none);

const MOST = 0.5; // of a difference: what is more of it is a reason for it

const percent = (share) => `${Math.round(100 * share)} %`;

/** A part of the time, where the title does not say it of the whole run. */
function shareOf(part, { title }, isZoomed) {
  return !isZoomed && title?.includes(` ${percent(part)} of the time`) ? "" : `${percent(part)} of the time`;
}

/** How many ranks wait, where some do and others do not; else all. */
const countOf = ({ waiting, numRanks }) => (waiting.length && waiting.length < numRanks ? waiting.length : numRanks);

/** Label, title, its part of all ranks' time (undefined where nobody knows), of how many ranks, and whether alike. */
const PARTS = [
  [
    "waiting",
    "a rank stands in a call or in wait() and nothing moves",
    ({ blocked, blockedShare, calls, messages }) => (calls || messages || blockedShare ? blocked : undefined),
    countOf,
    ({ areAlike }) => areAlike,
  ],
  [
    "exposed communication",
    "bytes move and a rank does not compute",
    ({ exposed, communication, bubble, numRanks, window }) =>
      communication >= NOTED * window * numRanks && Number.isFinite(bubble) ? exposed : undefined,
    ({ numRanks }) => numRanks,
    ({ areExposedAlike }) => areExposedAlike,
  ],
];

/** Whose time it is: ", mean of 4 ranks", of one run "each of ranks 1, 2" where they do alike; "" of one rank. */
function whose(numbers, count, areAlike) {
  const [{ waiting, numRanks, areNamed }] = numbers;
  const counts = [...new Set(numbers.map((each) => each.numRanks))];
  if (Math.max(...counts) === 1) return "";
  if (numbers.length > 1 && count === 0) return `, mean of ${counts.join(" and ")} ranks`;
  if (count === numRanks) return areAlike ? ", each rank" : `, mean of ${count} ranks`;
  if (!areNamed) return `, mean of the ${count} of ${numRanks} ranks that wait`; // a learner is to find them
  if (count === 1) return `, rank ${waiting[0]}`;
  return `, ${areAlike ? "each" : "mean"} of ranks ${ranksText(waiting)}`;
}

/** Label, title and value of a part of the time. */
function partTile(numbers, isZoomed, [label, title, read, howMany, isAlike]) {
  const values = numbers.map(read);
  if (values.every((value) => value === undefined)) return [];
  if (numbers.length > 1 && !explains(numbers, values)) return [];
  const [one] = numbers;
  const isPair = numbers.length > 1;
  const alone = isPair && label === "waiting" ? loneWaiters(numbers) : 0;
  const counts = numbers.map((each) => (isPair ? alone || each.numRanks : howMany(each)));
  const value = values
    .map((time, k) => (time === undefined ? "–" : plainTime(time / counts[k], isPair ? "0" : "none")))
    .join(" → ");
  const each = values[0] / counts[0];
  const isTold = !isPair && values[0];
  const share = isTold ? shareOf(each / one.window, one, isZoomed) : "";
  const hasSteps = isTold && label === "waiting" && !isZoomed && one.steps > 1;
  const aStep = hasSteps ? `${timeText(each / one.steps)} a step` : "";
  const who = whose(numbers, isPair ? alone : counts[0], isAlike(one));
  const told = [share, aStep].filter(Boolean).join(", ");
  return [
    [
      `${label}${isZoomed ? " in view" : ""}${who}${told && `: ${told}`}`,
      `mean over the ranks: time in which ${title}`,
      value,
    ],
  ];
}

/** How many ranks of the one of two runs wait in which any do, where some do not and may be named; else 0. */
function loneWaiters(numbers) {
  const [one, other] = numbers.filter(({ waiting }) => waiting.length);
  return !other && one === numbers[0] && one.areNamed && one.waiting.length < one.numRanks ? one.waiting.length : 0;
}

/** Whether a part of two runs' times changes as their lengths do: else it is no reason for these. */
function explains([run, other], [before, after]) {
  const change = other.window - run.window;
  return (after / other.numRanks - before / run.numRanks) * change > 0;
}

/** How long the busiest rank of each run moves bytes, where that makes most of the difference. */
function busiestTile(numbers) {
  const [run, other] = numbers;
  if (!other || (other.busiest - run.busiest) / (other.window - run.window) <= MOST) return [];
  const value = numbers.map(({ busiest }) => timeText(busiest)).join(" → ");
  return [["moving bytes, the busiest rank", "time in which bytes of one rank's calls move, at most", value]];
}

/** Why some come last, where they compute longer than the others do. */
function slowerTile([{ slower }, other]) {
  if (other || !slower) return [];
  const { ranks, compute, others } = slower;
  const who = `${ranks.length > 1 ? "ranks" : "rank"} ${ranksText(ranks)}`;
  const label = `computing: ${timeText(compute)}, the others ${timeText(others)}`;
  const times = `${Number((compute / others).toPrecision(2))} times as long`;
  return [[label, "mean time in which operators run", `${who}: ${times}`]];
}

/** Label, title and value of each tile: of one run a value each, of two "797 µs → 225 µs". */
export function tilesOf(numbers, isZoomed, names = []) {
  const inView = isZoomed ? " in view" : "";
  const [waiting, all] = PARTS.map((part) => partTile(numbers, isZoomed, part));
  const isOneBase = numbers.length > 1 || countOf(numbers[0]) === numbers[0].numRanks;
  const exposed = isOneBase ? all : []; // a share of all ranks beside one of some reads as a part of the same whole
  const length = numbers.map((each) => timeText(each.window)).join(" → ");
  const runs = numbers.length > 1 && names.length && names.every(Boolean) ? `: ${names.join(" → ")}` : "";
  const [{ steps, window }] = numbers;
  const aStep = steps > 1 && !numbers[1] && !isZoomed ? `: ${steps} steps, ${timeText(window / steps)} a step` : "";
  return [
    [`length${inView}${runs}${aStep}`, "time in view", length],
    ...waiting,
    ...busiestTile(numbers),
    ...slowerTile(numbers),
    ...exposed,
  ];
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
