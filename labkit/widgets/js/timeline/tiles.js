// What is read first under the sentence: how long, how long ranks wait, how much communication nothing hides.

import { element, unbroken } from "./element.js";
import { namesOf, ranksText } from "./layout.js";
import { NOTED } from "./numbers.js";
import { bytesText, percentText, timeText } from "./words.js";

/** Times in words; nothing beside something in its unit. */
function timesText(times) {
  const words = times.map((ns) => (ns === undefined ? "–" : timeText(ns)));
  const [unit] = times.flatMap((ns, k) => (ns ? [words[k].split(" ")[1]] : []));
  return words.map((each, k) => (times[k] === 0 && unit ? `0 ${unit}` : each)).join(" → ");
}

const MOST = 0.5; // of a difference: what is more of it is a reason for it

const percent = (share) => `${Math.round(100 * share)} %`;

/** A part of the time, of a run with steps of a step; where the title says it of the whole run, of steps alone. */
function shareOf(part, { title, edges, window }, isZoomed) {
  const ofStep = edges && (part * window) / (edges.at(-1) - edges[0]);
  if (edges && percent(ofStep) === percent(part)) return `${percent(part)} of a step`;
  return !isZoomed && title?.includes(` ${percent(part)} of the time`) ? "" : `${percent(part)} of the time`;
}

/** How many ranks wait, where some do and others do not; else all. */
const countOf = ({ waiting, numRanks }) => (waiting.length && waiting.length < numRanks ? waiting.length : numRanks);

/** Label, title, its part of all ranks' time (undefined where nobody knows), of how many ranks, and whether alike. */
const PARTS = [
  [
    "waiting",
    "stands in a call, and nothing moves",
    ({ blocked, blockedShare, calls, messages }) => (calls || messages || blockedShare ? blocked : undefined),
    countOf,
    ({ areAlike }) => areAlike,
  ],
  [
    "exposed communication",
    "bytes move, and nothing is computed",
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

/** Times in words; of one run with steps of one step. */
const eachStep = ({ edges }, words, times, isPair) =>
  edges && !isPair ? `${words(times.map((time) => time / (edges.length - 1)))} a step` : words(times);

/** Label, title and value of a part of the time. */
function partTile(numbers, isZoomed, [label, title, read, howMany, isAlike]) {
  const values = numbers.map(read);
  if (values.every((value) => value === undefined)) return [];
  if (numbers.length > 1 && !explains(numbers, values)) return [];
  const [one] = numbers;
  const isPair = numbers.length > 1;
  const alone = isPair && label === "waiting" ? loneWaiters(numbers) : 0;
  const counts = numbers.map((each) => (isPair ? alone || each.numRanks : howMany(each)));
  const means = values.map((time, k) => time && time / counts[k]);
  const value = isPair || means[0] ? eachStep(one, timesText, means, isPair) : "none";
  const each = values[0] / counts[0];
  const isTold = !isPair && values[0];
  const share = isTold ? shareOf(each / one.window, one, isZoomed) : "";
  const who = whose(numbers, isPair ? alone : counts[0], isAlike(one));
  return [[`${label}${isZoomed ? " in view" : ""}${who}${share && `: ${share}`}`, title, value]];
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

/** Of two runs, where one rank's communication makes most of the difference: its bytes, and how long it takes. */
function movingTiles(numbers) {
  const [run, other] = numbers;
  if (!other) return [];
  const change = other.window - run.window;
  const { busiest } = change < 0 ? run : other;
  const ofRank = numbers.map(({ moves }) => moves.find(({ rank }) => rank === busiest) ?? {});
  const of = (part) => ofRank.map((each) => each[part]);
  const by = (part) => of(part).reduce((before, after) => (after - before) * Math.sign(change));
  if (!(by("communication") > MOST * Math.abs(change))) return [];
  const isEven = ofRank.every((each) => each.sent === each.received) && by("sent") > 0;
  const bytes = [`rank ${busiest} sends, and receives as much`, "", of("sent").map(bytesText).join(" → ")];
  return [...(isEven ? [bytes] : []), [`rank ${busiest} communicates`, "", timesText(of("communication"))]];
}

const SLOWER = 1.1; // times the others' computing: less is no reason to come last

/** Why some come last, where they compute longer than the others do. */
function slowerTile([one, other]) {
  const { ranks, compute, others } = one.late ?? {};
  if (other || !(compute >= SLOWER * others && others)) return []; // also where nobody knows
  const label = `computing: ${eachStep(one, timesText, [compute])}, the others ${eachStep(one, timesText, [others])}`;
  const times = `${Number((compute / others).toPrecision(2))} times as long`;
  return [[label.replace(" a step", ""), "mean time in which operators run", `${namesOf(ranks)}: ${times}`]];
}

/** How long a rank is busy that works while the others wait, and they: what its headline says, in times that add up. */
function worksTiles([{ works, window }], isZoomed) {
  const inView = isZoomed ? " in view" : "";
  const { rank, busy, others, waiting } = works;
  const rest = `${timeText(others)} busy, ${timeText(Math.max(window - waiting - others, 0))} idle`;
  return [
    [`computing or moving bytes${inView}, rank ${rank}`, "busy", timeText(busy)],
    [
      `waiting${inView} (${percentText(waiting / window)}), mean of the others; ${rest}`,
      "stands in a call, and nothing moves",
      timeText(waiting),
    ],
  ];
}

/** What a step takes longer because some come last, where it is known how long it would take if they did not. */
function costTile([{ edges, inTime, late: latest, blocked, waiting, numRanks }, other]) {
  if (other || !edges || !inTime || !latest) return [];
  const count = edges.length - 1;
  const who = namesOf(latest.ranks);
  const parts = [latest.hidden, blocked / countOf({ waiting, numRanks })].map((time) => time / count);
  const words = [(edges.at(-1) - edges[0]) / count - inTime, ...parts].map(timeText);
  const [saved, late, waits] = words.map(Number.parseFloat);
  const isSum = late && Number((waits + late).toPrecision(3)) === saved; // as shown: in units that differ it is none
  const sum = isSum ? `: ${late} starting late + ${waits} waiting` : " (replayed)";
  return [[`lost to ${who}${sum}`, "replayed in time", `${words[0]} a step`]];
}

/** How long ranks wait; of one that works while they do, how long it is busy. */
const waitingTiles = (numbers, isZoomed, waiting) => (numbers[0].works ? worksTiles(numbers, isZoomed) : waiting);

/** How long a step of one run is, where it has steps, and what there is beside them. */
function lengthTile([{ edges, window }, other]) {
  if (other || !edges) return undefined;
  const count = edges.length - 1;
  const label = `length: ${count} steps, ${timeText(window)} in all`;
  return [label, "mean", `${timeText((edges.at(-1) - edges[0]) / count)} a step`];
}

/** Label, title and value of each tile: of one run a value each, of two "797 µs → 225 µs". */
export function tilesOf(numbers, isZoomed, names = []) {
  const inView = isZoomed ? " in view" : "";
  const [waiting, all] = PARTS.map((part) => partTile(numbers, isZoomed, part));
  const isOneBase = numbers.length > 1 || countOf(numbers[0]) === numbers[0].numRanks;
  const exposed = isOneBase ? all : []; // a share of all ranks beside one of some reads as a part of the same whole
  const moving = movingTiles(numbers);
  const cost = costTile(numbers);
  const isTold = numbers.length > 1 || cost.some(([label]) => label.includes("waiting"));
  const length = numbers.map((each) => timeText(each.window)).join(" → ");
  const runs = numbers.length > 1 && names.length && names.every(Boolean) ? `: ${names.join(" → ")}` : "";
  return [
    lengthTile(numbers) ?? [`length${inView}${runs}`, "time in view", length],
    ...slowerTile(numbers), // the cause before what it costs
    ...(isTold ? [] : waitingTiles(numbers, isZoomed, waiting)),
    ...moving,
    ...(numbers.length > 1 && !moving.length ? waiting : []), // of one rank all, or of all ranks
    ...cost,
    ...(moving.length ? [] : exposed),
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
