// Where everything lies, in CSS pixels: rows from top to bottom, time from left to right.

import { isCluster, standouts } from "./cluster.js";
import { labelOf } from "./kinds.js";
import { lateRanks, workingRank } from "./last_ranks.js";
import { Stack } from "./stack.js";
import { roomForSteps } from "./steps.js";

export const LEFT = 124;
const RIGHT = 54; // of what stands beside the rows
const EDGE = 8;
export const TOP = 22;
export const STRIP = 26;

/** Of a row: high enough for a name, for words beside it, and how far rows and ranks are apart. */
export const NAMED = 12;
const BESIDE = 9;
/** Pixels of a bar of those that are shown one by one; of few rows with words on them. */
export const PLAIN = 16;
const [FEW, TALL] = [8, 22];

/** Whether bars are high enough for words in them. */
export const holdsNames = (bar) => bar >= NAMED;

/** Whether they are for words beside them. */
export const holdsWords = (bar) => bar >= BESIDE;

/** Of alike ranks those that are told by the first, or by so many of the first and by the last. */
export const untold = (ranks, each) => (each > 1 ? ranks.slice(each - 1, -1) : ranks.slice(1));

/** The ranks that are told by others, which have rows. */
export const hiddenRanks = ({ alike = [], each = 1 }) => new Set(alike.flatMap((ranks) => untold(ranks, each)));

/** The rank whose rows tell of a rank where those alike are folded. */
export const shownFor = ({ alike = [] }, rank) => alike.find((group) => group.includes(rank))?.[0] ?? rank;

/** Numbers of ranks in words: "0-7", "1, 4, 6". */
export function ranksText(ranks) {
  const rows = [];
  for (const rank of ranks) {
    if (rank === rows.at(-1)?.[1] + 1) rows.at(-1)[1] = rank;
    else rows.push([rank, rank]);
  }
  const parts = rows.flatMap(([from, to]) => (to > from + 1 ? [`${from}-${to}`] : [...new Set([from, to])]));
  return parts.length > 4 ? `${parts.slice(0, 3).join(", ")}, ...` : parts.join(", ");
}

/** "rank 2", "ranks 1, 3". */
export const namesOf = (ranks) => `rank${ranks.length > 1 ? "s" : ""} ${ranksText(ranks)}`;

/** The most pixels of any bar; how many all ranks may take. */
const TALLEST = 64;
const ROOM = 575;

/** How many ranks of a run have rows. */
const countOf = (run, isFolded) => run.ranks.size - (isFolded ? hiddenRanks(run).size : 0);

/** Whether a run is shown as a cluster: its reader's wish, else where there are many ranks. */
export const asCluster = ({ runs, cluster }) =>
  runs.length === 1 ? isCluster(runs[0].ranks.size) && (cluster ?? true) : Boolean(cluster);

/** Rows of a cluster, high enough for all ranks to be seen at once. */
function ofCluster(state, high) {
  const { runs, folded } = state;
  const apart = standouts(runs[0]);
  const room = ROOM - 24 * apart.length - 24 * apart.flatMap(([, ranks]) => ranks).length;
  const count = countOf(runs[0], folded);
  const each = room / count - 2;
  const stack = new Stack(high(Math.max(3, Math.min(PLAIN, Math.floor((each * 3) / 4)))), state);
  stack.cluster(runs[0], 0, folded);
  return stack;
}

/** Rows of a run, lane under lane. */
function ofLanes(state, high) {
  const { runs, folded, low } = state;
  const hidden = folded ? hiddenRanks(runs[0]) : new Set();
  const count = runs[0].rows.filter(({ rank }) => !hidden.has(rank)).length;
  const most = low ? NAMED + 2 : (lateRanks(runs[0]).length && count <= FEW && TALL) || PLAIN;
  const bar = Math.min(most, Math.floor(700 / Math.max(count, 1)) - 2);
  const stack = new Stack(high(Math.max(3, bar)), state);
  stack.y += roomForSteps(state);
  stack.hasSteps = stack.y > TOP;
  stack.run(runs[0], 0, folded);
  return stack;
}

/** Ranks that are alike and have rows, where they exchange messages with each other: so one sees how. */
const SEVERAL = 3;
const HEAD = 25; // pixels over a run beside one of whose steps lines lie
const FOOT = 18; // pixels under two runs, for the axis of a step of the second that stands beside it

/** Whether more ranks than that are alike and exchange messages. */
const exchangeAlike = ({ alike = [], flow_from: flows }) =>
  flows.length > 0 && alike.some((group) => group.length > SEVERAL);

/** Two runs, one under the other: as high as both have room, in lanes, else one row a rank, else one row a run. */
function ofTwo(state, high) {
  const { runs, folded, cluster, strips, room } = state;
  const stackOf = (bar, put) => {
    const stack = new Stack(high(bar), state);
    runs.forEach((run, number) => {
      stack.head(run.name, run.each > 1 ? HEAD : 18);
      put(stack, run, number);
    });
    if (exchangeAlike(runs.at(-1)) && put === lanes) stack.y += FOOT;
    return stack;
  };
  const lanes = (stack, run, number) => stack.run(run, number, folded);
  const ranks = (stack, run, number) => stack.plain(run, number, folded);
  if (strips) return stackOf(PLAIN, (stack, run, number) => stack.strip(run, number));
  const several = runs.some(exchangeAlike) ? [Infinity, SEVERAL, 1] : [1];
  const ways = [...(cluster ? [] : several.map((each) => [lanes, each])), ...((cluster ?? true) ? [[ranks, 1]] : [])];
  let stack;
  for (const [way, each] of ways) {
    for (const run of runs) run.each = exchangeAlike(run) ? each : 1;
    for (let bar = PLAIN; bar >= (way === lanes ? NAMED : BESIDE); bar--) {
      stack = stackOf(bar, way);
      if (stack.y <= room) return stack;
    }
  }
  return stack;
}

/** Whether a row of one of two runs is drawn as two tracks, because bytes go both ways at once in it. */
export const hasTracks = ({ runs, overlay }, { tracks }) => tracks && runs.length > 1 && !overlay;

/** Where they lie: what comes over what goes. */
const tracksOf = ({ row, y, bar, ...place }) =>
  row.tracks.map((track, k) => ({ ...place, row: track, y: y + (k * bar) / 2, bar: bar / 2 }));

/** Whether a headline names who is waited for: then the waits matter, or the tiles say who is busy. */
const isNamed = (run) => lateRanks(run).length > 0 || workingRank(run) >= 0;

/** Whether it stands beside a row how busy it is: of two runs their lengths matter. */
const tellsShares = ({ runs, overlay }) => overlay || (runs.length === 1 && !isNamed(runs[0]));

/** Where every row lies, and in `state` where time ends at the right; `tall` times as high as they are at first. */
export function layOut(state) {
  const { runs, overlay, tall } = state;
  for (const run of runs) run.each = 1;
  const high = (bar) => Math.round(Math.min(bar * tall, TALLEST));
  let way = ofLanes;
  if (runs.length > 1 && !overlay) way = ofTwo;
  else if (asCluster(state) && runs.length === 1) way = ofCluster;
  const { rows, memories, heads, gapsIn, without, hasSteps, bar, y } = way(state, high);
  const hasShares = tellsShares(state) && rows.some(({ bar: each, row }) => holdsWords(each) && !row.of);
  state.right = state.width - (runs.length > 1 || hasShares || memories.length ? RIGHT : EDGE);
  const bars = rows.flatMap((place) => (hasTracks(state, place.row) ? tracksOf(place) : [place]));
  return { rows, bars, memories, heads, gapsIn, without, hasSteps, hasShares, bar, height: Math.max(y, TOP + 24) };
}

/** Whether not all of the whole is in view. */
export const isZoomed = ({ view, whole }) => String(view) !== String(whole);

/** By how much a run is shifted: one shown beside another by its offset. */
export const shiftOf = (state, run) => (run ? state.offset : 0);

/** The part of a run that is in view. */
export const windowOf = (state, run) => state.view.map((time) => time - shiftOf(state, run));

/**
 * That part of it in which the run had begun and not ended, where it stands beside another: a shorter run is not idle
 * after its end.
 */
export function ownWindow(state, run) {
  const [a, b] = windowOf(state, run);
  if (state.runs.length < 2) return [a, b];
  const { span } = state.runs[run];
  const from = Math.min(Math.max(a, 0), span);
  return [from, Math.max(Math.min(b, span), from)];
}

/** How many ns a pixel stands for. */
export const pixelOf = ({ view, right }) => (view[1] - view[0]) / (right - LEFT);

/** Where a time lies. */
export const xOf = (state, time) => LEFT + (time - state.view[0]) / pixelOf(state);

/** Where a time of a run lies. */
export const xIn = (state, run, time) => xOf(state, time + shiftOf(state, run));

/** Which time lies there. */
export const timeOf = (state, x) => state.view[0] + (x - LEFT) * pixelOf(state);

/** A state in which the whole lies in view, as the strip shows it. */
export const wholeOf = (state) => ({ ...state, view: state.whole });

/** That part between two pixels in which time lies. */
export const within = ({ right }, from, to) => [Math.max(from, LEFT), Math.min(to, right)];

/** Where the row of an event lies, or its track of it, if it has one. */
export const placeOf = (state, run, event) =>
  state.layout.bars.find(
    ({ run: number, row: { first, last, skips } }) =>
      number === run && event >= first && event < last && labelOf(state.runs[run], event)[2] !== skips,
  );
