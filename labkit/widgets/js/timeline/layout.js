// Where everything lies, in CSS pixels: rows from top to bottom, time from left to right.

import { areColoured, bareLanes, isNearlyBare } from "./bare.js";
import { isCluster, standouts } from "./cluster.js";
import { rowOf } from "./complete.js";
import { leftOut } from "./few.js";
import { COMMUNICATION, COMPUTE, REGION } from "./kinds.js";
import { lateRanks } from "./last_ranks.js";
import { roomForSteps } from "./steps.js";
import { stripOf } from "./strips.js";

export const LEFT = 124;
export const RIGHT = 54;
export const TOP = 22;
export const STRIP = 26;

/** Of a row: high enough for a name, for words beside it, and how far rows and ranks are apart. */
const NAMED = 12;
const BESIDE = 9;
/** Pixels of a bar of those that are shown one by one. */
const PLAIN = 16;

/** Whether bars are high enough for words in them. */
export const holdsNames = (bar) => bar >= NAMED;

/** Whether they are for words beside them. */
export const holdsWords = (bar) => bar >= BESIDE;

function gapsOf(bar) {
  if (bar >= PLAIN) return { lane: 2, rank: 9 };
  if (bar >= NAMED) return { lane: 1, rank: 4 };
  return bar >= 6 ? { lane: 1, rank: 5 } : { lane: 0, rank: 3 };
}

/** Pixels between the rows of two streams, for arrows from one to the other. */
const ROOM_OF_ARROWS = 9;

/** The ranks that are told by the first of those they are alike, or by as many of these as have rows. */
export const hiddenRanks = ({ alike = [], each = 1 }) => new Set(alike.flatMap((ranks) => ranks.slice(each)));

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

const MOST = 1000; // messages that are looked at

/** Pixels of a row in which next to nothing is. */
const BARE = 3;

/** Pixels of the row of a rank that is seen only for the messages it exchanges. */
const LOW = 9;
const APART = 3; // pixels more under a run's name

/**
 * The ranks that are folded and from which the first of the alike ones with rows receives, and to which the last sends:
 * { first, last, before, after }, and `next`, to whom each rank sends.
 */
export function neighboursOf(run) {
  const { alike = [], each = 1, flow_from: sources, flow_to: targets } = run;
  const group = each > 1 && alike.find((ranks) => ranks.length > each);
  if (!group) return {};
  const [first, last] = [group[0], group[each - 1]];
  const rankOf = (event) => rowOf(run, event).rank;
  const pairs = Array.from(sources.subarray(0, MOST), (from, f) => [rankOf(from), rankOf(targets[f])]);
  const folded = group.slice(each);
  return {
    first,
    last,
    next: new Map(pairs),
    before: pairs.find(([from, to]) => to === first && folded.includes(from))?.[0],
    after: pairs.find(([from, to]) => from === last && folded.includes(to))?.[1],
  };
}

/** Pixels of words under a row. */
const TOLD = 14;

/** Pixels of the row that stands for a run. */
const STRIP_BAR = 72;

/** The most pixels of any bar; how many all ranks may take. */
const TALLEST = 64;
const ROOM = 575;

/** Puts rows under each other. */
class Stack {
  constructor(bar, { memory: hasMemory, spans, runs }) {
    this.bar = bar;
    this.isBeside = runs.length > 1;
    this.hasNames = spans;
    this.tells = runs.length === 1 && lateRanks(runs[0]).length > 0 && holdsNames(bar);
    this.hasMemory = hasMemory;
    this.gaps = gapsOf(bar);
    this.y = TOP;
    this.rows = [];
    this.memories = [];
    this.heads = [];
    this.gapsIn = [];
  }

  /** Words in place of the ranks that are left out, where the rank before them has been put. */
  skip(rank, out) {
    const after = out.slice(out.indexOf(rank + 1)).filter((each, k) => each === rank + 1 + k);
    if (!out.includes(rank + 1)) return;
    this.gapsIn.push({ y: this.y, text: `⋮ ${after.length > 1 ? "ranks" : "rank"} ${ranksText(after)}` });
    this.y += NAMED + this.gaps.rank;
  }

  /** Words in place of the others that are alike, where several of these have rows, under the last of them. */
  tellAlike({ alike = [], each = 1 }, rank, { before, after }) {
    const group = each > 1 && alike.find((ranks) => ranks[each - 1] === rank);
    if (!group || group.length <= each) return;
    const others = group.slice(each).filter((other) => other !== before && other !== after);
    if (!others.length) return;
    this.gapsIn.push({ y: this.y - this.gaps.rank / 2, text: `▸ ranks ${ranksText(others)} alike` });
    this.y += NAMED;
  }

  /** The calls of a rank that is folded, low, beside the one that it exchanges messages with. */
  neighbour(run, number, rank) {
    const calls = run.ranks.get(rank)?.lanes[COMMUNICATION];
    if (!calls) return;
    this.y += this.rows.at(-1)?.run === number ? 0 : APART;
    this.put(number, calls, LOW, true);
    this.y += this.gaps.rank;
  }

  head(text) {
    this.heads.push({ y: this.y, text });
    this.y += 18;
  }

  /** A rank's memory under its lanes, where it was asked for and is high enough to be read. */
  memory(run, rank, number, bar) {
    if (!this.hasMemory || !holdsNames(bar) || !run.memory.includes(rank)) return;
    const height = bar + 4;
    this.memories.push({ run: number, rank, y: this.y, height });
    this.y += height + this.gaps.lane;
  }

  put(run, row, bar, first) {
    this.rows.push({ run, row, y: this.y, bar, first });
    this.y += bar;
  }

  /** Room under the calls of a rank for words about waits, where some rank comes last. */
  tell(row) {
    if (!this.tells || row.lane !== COMMUNICATION || row.stream) return;
    this.rows.at(-1).told = true;
    this.y += TOLD;
  }

  /** The rows of one run, rank under rank. */
  run(run, number, isFolded, few) {
    const hidden = isFolded ? hiddenRanks(run) : new Set();
    const out = leftOut(run, few, hidden);
    out.forEach((rank) => hidden.add(rank));
    const hasNames = (this.hasNames || !areColoured(run)) && !(few && few < 99); // slides give them up
    let shown = run.rows.filter(({ rank, lane }) => !hidden.has(rank) && (lane !== REGION || hasNames));
    const lanes = bareLanes(run);
    const isNear = (row) => lanes.has(row.lane) || (this.isBeside && isNearlyBare(run, row));
    const isBare = (row) => !row.stream && holdsNames(this.bar) && isNear(row);
    if (this.isBeside) shown = shown.filter((row) => !isBare(row)); // a line of it would need words
    const around = isFolded ? neighboursOf(run) : {};
    shown.forEach((row, k) => {
      if (row.rank === around.first && !this.rows.some((place) => place.run === number))
        this.neighbour(run, number, around.before);
      const isFirst = shown.slice(0, k).every((other) => other.rank !== row.rank || isBare(other));
      this.put(number, row, isBare(row) ? BARE : this.bar, isFirst && !isBare(row));
      this.tell(row);
      this.y += row.stream && holdsNames(this.bar) ? ROOM_OF_ARROWS : this.gaps.lane;
      if (shown[k + 1]?.rank === row.rank) return;
      this.memory(run, row.rank, number, this.bar);
      this.y += this.gaps.rank;
      this.skip(row.rank, out);
      if (row.rank === around.last) this.neighbour(run, number, around.after);
      if (isFolded) this.tellAlike(run, row.rank, around);
    });
  }

  /** One row a rank with its communication thin beneath it: first those who stand out, high, then all others. */
  cluster(run, number, isFolded, few) {
    const hidden = isFolded ? hiddenRanks(run) : new Set();
    const told = new Set();
    for (const [words, ranks] of standouts(run)) {
      const own = [...new Set(ranks.map((rank) => (isFolded ? shownFor(run, rank) : rank)))];
      const fresh = own.filter((rank) => !told.has(rank));
      if (!fresh.length) continue;
      this.head(words);
      for (const rank of fresh) this.rank(run, number, rank, Math.max(this.bar, PLAIN));
      fresh.forEach((rank) => told.add(rank));
      this.y += this.gaps.rank;
    }
    if (told.size) this.head("the others");
    told.forEach((rank) => hidden.add(rank));
    this.ranks(run, number, hidden, few);
  }

  /** One row a rank, and nothing apart. */
  plain(run, number, isFolded, few) {
    const hidden = isFolded ? hiddenRanks(run) : new Set();
    this.ranks(run, number, hidden, few);
  }

  /** One row for each rank that is not hidden, or for few of them. */
  ranks(run, number, hidden, few) {
    const out = leftOut(run, few, hidden);
    for (const rank of run.ranks.keys()) {
      if (hidden.has(rank) || out.includes(rank)) continue;
      this.rank(run, number, rank, this.bar);
      this.skip(rank, out);
    }
  }

  /** One row for all ranks. */
  strip(run, number) {
    this.put(number, stripOf(run), STRIP_BAR, true);
    this.y += this.gaps.rank;
  }

  rank(run, number, rank, bar) {
    const { lanes } = run.ranks.get(rank);
    const [work, calls] = [lanes[COMPUTE], lanes[COMMUNICATION]];
    if (work) this.put(number, work, bar, true);
    if (calls) this.put(number, calls, work ? Math.max(2, Math.round(bar / 3)) : bar, !work);
    this.memory(run, rank, number, bar);
    this.y += 2;
  }
}

/** How many ranks of a run have rows. */
const countOf = (run, isFolded) => run.ranks.size - (isFolded ? hiddenRanks(run).size : 0);

/** Whether a run is shown as a cluster: its reader's wish, else where there are many ranks. */
export const asCluster = ({ runs, cluster }) =>
  runs.length === 1 ? isCluster(runs[0].ranks.size) && (cluster ?? true) : Boolean(cluster);

/** Rows of a cluster, high enough for all ranks to be seen at once. */
function ofCluster(state, high) {
  const { runs, folded, few } = state;
  const apart = standouts(runs[0]);
  const room = ROOM - 24 * apart.length - 24 * apart.flatMap(([, ranks]) => ranks).length;
  const count = countOf(runs[0], folded);
  const each = room / Math.min(count, few || count) - 2;
  const stack = new Stack(high(Math.max(3, Math.min(PLAIN, Math.floor((each * 3) / 4)))), state);
  stack.cluster(runs[0], 0, folded, few);
  return stack;
}

/** Rows of a run, lane under lane. */
function ofLanes(state, high) {
  const { runs, folded, few, low } = state;
  const hidden = folded ? hiddenRanks(runs[0]) : new Set();
  leftOut(runs[0], few, hidden).forEach((rank) => hidden.add(rank));
  const count = runs[0].rows.filter(({ rank }) => !hidden.has(rank)).length;
  const bar = Math.min(low ? NAMED + 2 : PLAIN, Math.floor(700 / Math.max(count, 1)) - 2);
  const stack = new Stack(high(Math.max(3, bar)), state);
  stack.y += roomForSteps(state);
  stack.hasSteps = stack.y > TOP;
  stack.run(runs[0], 0, folded, few);
  return stack;
}

/** Ranks that are alike and have rows, where they exchange messages with each other: so one sees how. */
const SEVERAL = 3;
const WIDE = 600; // pixels of a view in which their messages can be told apart

/** Whether more ranks than that are alike and exchange messages. */
const exchangeAlike = ({ alike = [], flow_from: flows }) =>
  flows.length > 0 && alike.some((group) => group.length > SEVERAL);

/** Two runs, one under the other: as high as both have room, in lanes, else one row a rank, else one row a run. */
function ofTwo(state, high) {
  const { runs, folded, cluster, strips, room, few, width } = state;
  const stackOf = (bar, put) => {
    const stack = new Stack(high(bar), state);
    runs.forEach((run, number) => {
      stack.head(run.name);
      put(stack, run, number);
    });
    return stack;
  };
  const lanes = (stack, run, number) => stack.run(run, number, folded, few);
  const ranks = (stack, run, number) => stack.plain(run, number, folded, few);
  if (strips) return stackOf(PLAIN, (stack, run, number) => stack.strip(run, number));
  const several = width >= WIDE && runs.some(exchangeAlike) ? [SEVERAL, 1] : [1];
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

/** Where every row lies; `tall` times as high as they are at first. */
export function layOut(state) {
  const { runs, overlay, tall } = state;
  for (const run of runs) run.each = 1;
  const high = (bar) => Math.round(Math.min(bar * tall, TALLEST));
  let way = ofLanes;
  if (runs.length > 1 && !overlay) way = ofTwo;
  else if (asCluster(state) && runs.length === 1) way = ofCluster;
  const { rows, memories, heads, gapsIn, hasSteps, bar, y } = way(state, high);
  return { rows, memories, heads, gapsIn, hasSteps, bar, height: Math.max(y, TOP + 24) };
}

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
export const pixelOf = ({ view, width }) => (view[1] - view[0]) / (width - LEFT - RIGHT);

/** Where a time lies. */
export const xOf = (state, time) => LEFT + (time - state.view[0]) / pixelOf(state);

/** Which time lies there. */
export const timeOf = (state, x) => state.view[0] + (x - LEFT) * pixelOf(state);

/** A state in which the whole lies in view, as the strip shows it. */
export const wholeOf = (state) => ({ ...state, view: state.whole });

/** Where the row of an event lies, if it has one. */
export const placeOf = (state, run, event) =>
  state.layout.rows.find((place) => place.run === run && event >= place.row.first && event < place.row.last);
