// What is read first under the sentence: how long, how long ranks wait, how much communication nothing hides.

import { element, unbroken } from "./element.js";
import { namesOf, ranksText } from "./layout.js";
import { NOTED } from "./numbers.js";
import { isOfSteps } from "./steps.js";
import { bytesText, percentText, timeText } from "./words.js";

/** Times in words; nothing beside something in its unit. */
function timesText(times) {
  const words = times.map((ns) => (ns === undefined ? "–" : timeText(ns)));
  const [unit] = times.flatMap((ns, k) => (ns ? [words[k].split(" ")[1]] : []));
  return words.map((each, k) => (times[k] === 0 && unit ? `0 ${unit}` : each)).join(" → ");
}

const MOST = 0.5; // of a difference: what is more of it is a reason for it
const COUNTS = 0.1; // of a run: what is more of it is worth a tile

const percent = (share) => `${Math.round(100 * share)} %`;

/** A part of the time, of a run with steps of a step; where the title says it of the whole run, of steps alone. */
function shareOf(part, { title, edges, window }, isZoomed) {
  const ofStep = edges && (part * window) / (edges.at(-1) - edges[0]);
  if (edges && percent(ofStep) === percent(part)) return `${percent(part)} of a step`;
  return !isZoomed && title?.includes(` ${percent(part)} of the time`) ? "" : `${percent(part)} of the time`;
}

/** How many ranks wait, where some do and others do not; else all. */
const countOf = ({ waiting, numRanks }) => (waiting.length && waiting.length < numRanks ? waiting.length : numRanks);

/** Label, its part of all ranks' time (undefined where nobody knows), and the name of whether it is alike. */
const PARTS = [
  [
    "waiting",
    ({ blocked, blockedShare, calls, messages }) => (calls || messages || blockedShare ? blocked : undefined),
    "areAlike",
  ],
  [
    "exposed communication",
    ({ exposed, communication, bubble, numRanks, window }) =>
      communication >= NOTED * window * numRanks && Number.isFinite(bubble) ? exposed : undefined,
    "areExposedAlike",
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

/** Times in words; of one run with steps of one step. */
const eachStep = ({ edges }, words, times, isPair) =>
  edges && !isPair ? `${words(times.map((time) => time / (edges.length - 1)))} a step` : words(times);

const shown = (time) => Number(time.toPrecision(3));

/** Whether a number, rounded as a time is, is that of a time in words. */
const isShown = (number, words) => shown(number) === Number.parseFloat(words);

/** "3 × 40.1 = " before "120 µs", where that is so of equal waits as they are shown; else "". */
function productOf([count, words], value) {
  const long = Number.parseFloat(words);
  return count > 1 && isShown(count * long, value) ? `${count} × ${long} = ` : "";
}

/** The tile of a part of the time. */
function partTile(numbers, inView, [label, read, alike]) {
  const values = numbers.map(read);
  if (values.every((value) => value === undefined)) return [];
  if (numbers.length > 1 && !explains(numbers, values)) return [];
  const [one] = numbers;
  const isPair = numbers.length > 1;
  const isWaiting = label === "waiting";
  const alone = isPair && isWaiting ? loneWaiters(numbers) : 0;
  const counts = numbers.map((each) => alone || (isWaiting && !isPair ? countOf(each) : each.numRanks));
  const means = values.map((time, k) => time && time / counts[k]);
  const value = isPair || means[0] ? eachStep(one, timesText, means, isPair) : "none";
  const each = values[0] / counts[0];
  const isTold = !isPair && values[0];
  const share = isTold ? shareOf(each / one.window, one, inView) : "";
  const who = whose(numbers, isPair ? alone : counts[0], one[alike]);
  const product = isTold && isWaiting ? productOf(one.equal, value) : "";
  return [[`${label}${inView}${who}${share && `: ${share}`}`, product + value]];
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

/** Of the second of two runs, how long the last bytes of its steps are on their way, where that counts; else none. */
function latencyTile([, { latency, window }], name, isZoomed) {
  const [count, each, sum] = latency ?? [];
  const words = latency && !isZoomed && sum > COUNTS * window ? timeText(sum) : "";
  const product = words && productOf([count, each], words);
  return product ? [[`latency, once in each step: ${name}`, product + words]] : [];
}

/** Of two runs, where one rank's communication makes most of the difference: its bytes, and what else takes time. */
function movingTiles(numbers, isZoomed, names) {
  const [run, other] = numbers;
  if (!other) return [];
  const change = other.window - run.window;
  const { busiest } = change < 0 ? run : other;
  const ofRank = numbers.map(({ moves }) => moves.find(({ rank }) => rank === busiest) ?? {});
  const of = (part) => ofRank.map((each) => each[part]);
  const by = (part) => of(part).reduce((before, after) => (after - before) * Math.sign(change));
  if (!(by("communication") > MOST * Math.abs(change))) return [];
  const isEven = ofRank.every((each) => each.sent === each.received) && by("sent") > 0;
  const bytes = [`rank ${busiest} sends, and receives as much`, of("sent").map(bytesText).join(" → ")];
  const latency = isEven && latencyTile(numbers, names[1], isZoomed);
  const rest = latency?.length ? latency : [[`rank ${busiest} communicates`, timesText(of("communication"))]];
  return [...(isEven ? [bytes] : []), ...rest];
}

const SLOWER = 1.1; // times the others' computing: less is no reason to come last
const ROUNDED = 0.005; // of a time that is shown

/** Why some come last, where they compute longer than the others do; the times where these wait for the rest. */
function slowerTile([one, other]) {
  const { ranks, compute, others } = one.late ?? {};
  if (other || !(compute >= SLOWER * others && others)) return []; // also where nobody knows
  const isWait = Math.abs(compute - others - one.blocked / countOf(one)) < ROUNDED * compute;
  const [theirs, rest] = [compute, others].map((time) => eachStep(one, timesText, [time]));
  const label = `${namesOf(ranks)}${isWait ? `: ${theirs}, the others ${rest}` : ", compared with the others"}`;
  const verb = ranks.length > 1 ? "compute" : "computes";
  return [[label, `${verb} ${Number((compute / others).toPrecision(2))} times as long`]];
}

/** How long a rank is busy that works while the others wait, and they: what its headline says, in times that add up. */
function worksTiles([{ works, window }], inView) {
  const { rank, busy, others, waiting } = works;
  const rest = `${timeText(others)} busy, ${timeText(Math.max(window - waiting - others, 0))} idle`;
  return [
    [`computing or moving bytes${inView}, rank ${rank}`, timeText(busy)],
    [`waiting${inView} (${percentText(waiting / window)}), mean of the others; ${rest}`, timeText(waiting)],
  ];
}

/** What a step takes longer because some come last, as a sum of what is seen, where it is one. */
function costTile([one, other]) {
  const { edges, inTime, late: latest } = one;
  if (other || !edges || !inTime || !latest) return [];
  const count = edges.length - 1;
  const parts = [latest.hidden, one.blocked / countOf(one)].map((time) => time / count);
  const words = [(edges.at(-1) - edges[0]) / count - inTime, ...parts].map(timeText);
  const [, late, waits] = words.map(Number.parseFloat);
  const sum = `${late} + ${waits} = ${words[0]}`;
  return late && isShown(late + waits, words[0]) ? [["starting late + waiting, each step", sum]] : [];
}

/** How long ranks wait; of one that works while they do, how long it is busy. */
const waitingTiles = (numbers, inView, waiting) => (numbers[0].works ? worksTiles(numbers, inView) : waiting);

/** How long one of its steps is, where one run has any and the title does not say it; else how long runs are. */
function lengthTile(numbers, inView, names) {
  const [one, other] = numbers;
  const { edges, title } = one;
  if (!other && edges) {
    const value = eachStep(one, timesText, [edges.at(-1) - edges[0]]);
    return isOfSteps(title) ? [] : [[`length, mean of ${edges.length - 1} steps`, value]];
  }
  const runs = other && names.length && names.every(Boolean) ? `: ${names.join(" → ")}` : "";
  const length = numbers.map((each) => timeText(each.window)).join(" → ");
  return [[`length${inView}${runs}`, length]];
}

/** Label and value of each tile: of one run a value each, of two "797 µs → 225 µs". */
export function tilesOf(numbers, isZoomed, names = []) {
  const inView = isZoomed ? " in view" : "";
  const [waiting, all] = PARTS.map((part) => partTile(numbers, inView, part));
  const isOneBase = numbers.length > 1 || countOf(numbers[0]) === numbers[0].numRanks;
  const exposed = isOneBase ? all : []; // a share of all ranks beside one of some reads as a part of the same whole
  const moving = movingTiles(numbers, isZoomed, names);
  const cost = costTile(numbers);
  const isTold = numbers.length > 1 || cost.length > 0;
  return [
    ...lengthTile(numbers, inView, names),
    ...slowerTile(numbers), // the cause before what it costs
    ...(isTold ? [] : waitingTiles(numbers, inView, waiting)),
    ...moving,
    ...(numbers.length > 1 && !moving.length ? waiting : []), // of one rank all, or of all ranks
    ...cost,
    ...(moving.length ? [] : exposed),
  ];
}

/** Write the tiles of what is in view. */
export function writeTiles(place, numbers, isZoomed, names) {
  const tiles = tilesOf(numbers, isZoomed, names).map(([label, value]) =>
    element("div", {}, element("dd", {}, ...unbroken(value)), element("dt", {}, label)),
  );
  const key = tiles.map((tile) => tile.textContent).join("|");
  if (place.dataset.tiles === key) return;
  place.dataset.tiles = key;
  place.replaceChildren(...tiles);
}
