// Steps in which a rank sends and receives at once, as round a ring.

import { COMMUNICATION, RECEIVE, SEND, labelOf } from "./kinds.js";
import { once } from "./once.js";
import { bytesText, timeText } from "./words.js";

const FEWEST = 3; // steps
const isWay = (way) => way === SEND || way === RECEIVE;

/** The events of each of a row's steps, where each is a send and a receive at once; else none. */
function stepsOf({ labels, label, start, end }, { first, last }) {
  const ways = Array.from(label.subarray(first, last), (each) => labels[each][2]);
  const until = ways.findLastIndex(isWay) + 1;
  const steps = [];
  for (let k = ways.findIndex(isWay); k < until; k += 2) {
    // before and after it a collective may be
    const isPair = isWay(ways[k]) && ways[k] + ways[k + 1] === SEND + RECEIVE;
    if (!isPair || start[first + k + 1] >= end[first + k]) return [];
    steps.push([first + k, first + k + 1]);
  }
  return steps;
}

/** { rank, steps } of the first of ranks that do alike, if they exchange messages; else undefined. */
const ofAlike = once((run) => {
  const [rank] = run.alike.find((ranks) => ranks.length > 1);
  const steps = stepsOf(run, run.ranks.get(rank).lanes[COMMUNICATION]);
  return steps.length < FEWEST ? undefined : { rank, steps };
});

/** That, while ranks that are alike are drawn one by one: how many there is room for may change. */
export const exchanges = (run) => (run.each > 1 ? ofAlike(run) : undefined);

const callOf = (run, step, way) => step.find((event) => labelOf(run, event)[2] === way);

/** "14 steps of 2 MB": how many there are, and what a rank sends in each, where that is always as much. */
export function stepsText(run) {
  const { steps } = exchanges(run);
  const sizes = new Set(steps.map((step) => bytesText(run.bytes[callOf(run, step, SEND)])));
  return `${steps.length} steps${sizes.size === 1 ? ` of ${[...sizes][0]}` : ""}`;
}

/** When the last byte of what a step sends leaves, and when that of what it receives is there. */
export const passing = (run, step) => [SEND, RECEIVE].map((way) => run.end[callOf(run, step, way)]);

/** [how often, how long in words, all of it] between these two, where that is always as long; else undefined. */
export function latencies(run) {
  const { steps } = exchanges(run) ?? {};
  const all = steps?.map((step) => passing(run, step)).map(([sent, came]) => came - sent);
  const words = new Set(all?.map(timeText));
  return words.size === 1 ? [all.length, ...words, all.reduce((sum, each) => sum + each)] : undefined;
}
