// What is blue where backward is not: forward, and what else computes.

import { paintCopies } from "./copies.js";
import { COMPUTE, REGION, labelOf } from "./kinds.js";
import { windowOf, within, xIn } from "./layout.js";
import { once } from "./once.js";
import { lowerBound } from "./search.js";
import { rowBusy } from "./shares.js";

const MOSTLY = 0.9; // of the time: what is so for that is called by it
const MOST = 2000; // segments of a row
const SEEN = 1; // pixels

const FORWARD = 0; // the category

/** [begin, end] of the regions called forward on a rank. */
function regionsOf(run, rank) {
  const { first = 0, last = 0 } = run.ranks.get(rank).lanes[REGION] ?? {};
  const all = Array.from({ length: last - first }, (_, k) => first + k);
  return all.filter((i) => labelOf(run, i)[0] === "forward").map((i) => [run.start[i], run.end[i]]);
}

/** How long a row computes forward or what is as blue. */
function blueIn({ segmentCategory, segmentStart, segmentEnd }, { from, to }) {
  let all = 0;
  for (let s = from; s < to; s++) if (segmentCategory[s] === FORWARD) all += segmentEnd[s] - segmentStart[s];
  return all;
}

/** Whether next to nothing but forward is blue, and some of it is. */
export const isForward = once((run) => {
  let [inside, all] = [0, 0];
  for (const { rank, lanes } of run.ranks.values()) {
    const work = lanes[COMPUTE];
    if (!work) continue;
    all += blueIn(run, work);
    for (const [from, to] of regionsOf(run, rank)) inside += rowBusy(run, work, from, to);
  }
  return inside >= MOSTLY * all;
});

/** The parts of [begin, end] that no region covers; regions are in order. */
function outside(begin, end, regions) {
  const parts = [];
  let at = begin;
  for (const [from, to] of regions) {
    if (to <= at || from >= end) continue;
    if (from > at) parts.push([at, from]);
    at = Math.max(at, to);
  }
  return at < end ? [...parts, [at, end]] : parts;
}

/** Paint over what is blue and no forward in a row, where the legend calls blue forward. */
function paintRow(context, state, { run: number, row, y, bar }) {
  const run = state.runs[number];
  const regions = regionsOf(run, row.rank);
  const [t0, t1] = windowOf(state, number);
  const first = Math.max(row.from, lowerBound(run.segmentStart, row.from, row.to, t0) - 1);
  const stop = Math.min(lowerBound(run.segmentStart, row.from, row.to, t1), first + MOST);
  for (let s = first; s < stop; s++) {
    if (run.segmentCategory[s] !== FORWARD) continue;
    for (const ends of outside(run.segmentStart[s], run.segmentEnd[s], regions)) {
      const [from, to] = ends.map((time) => Math.round(xIn(state, number, time)));
      const [left, right] = within(state, from, to);
      if (right - left < SEEN) continue;
      context.fillRect(left, y, right - left, bar);
      state.marks.add("other");
    }
  }
}

/** Paint grey what computes outside forward, backward and optimizer; where there are no such, what copies. */
export function paintOther(context, state) {
  context.fillStyle = state.theme.memory;
  for (const place of state.layout.rows) {
    const { row, run } = place;
    const isSteps = state.runs[run].owned.has(1);
    if (row.lane !== COMPUTE || row.of) continue;
    if (!isSteps) paintCopies(context, state, place);
    else if (isForward(state.runs[run])) paintRow(context, state, place);
  }
}
