// Communication that nothing hides: a red edge set off by a line of ground, in runs that hide some of it.

import { BLOCKED, COMMUNICATION, COMPUTE } from "./kinds.js";
import { lateRanks } from "./last_ranks.js";
import { LEFT, holdsNames, pixelOf, windowOf } from "./layout.js";
import { lowerBound } from "./search.js";
import { unsplit } from "./unsplit.js";

const EDGE = 3; // pixels

/** Whether some of a run's communication is hidden: Python says so of a run that has ended. */
export function hidesSome(run) {
  run.hides ??= [...run.ranks.values()].some(({ lanes: [compute, calls] }) => {
    if (!compute || !calls) return false;
    for (let s = calls.from; s < calls.to; s++) {
      if (run.segmentCategory[s] !== BLOCKED && overlaps(run, compute, s)) return true;
    }
    return false;
  });
  return run.hides;
}

function overlaps({ segmentStart, segmentEnd }, compute, s) {
  const at = lowerBound(segmentEnd, compute.from, compute.to, segmentStart[s] + 1);
  return at < compute.to && segmentStart[at] < segmentEnd[s];
}

/** Call `draw` with those stretches of a segment of a row in which its rank does not compute. */
export function eachExposed(run, { rank }, s, draw) {
  let from = run.segmentStart[s];
  const to = run.segmentEnd[s];
  const { segmentStart, segmentEnd } = unsplit(run); // on whatever stream
  const { from: first, to: stop } = run.ranks.get(rank).lanes[COMPUTE] ?? { from: 0, to: 0 };
  for (let at = lowerBound(segmentEnd, first, stop, from + 1); at < stop && segmentStart[at] < to; at++) {
    if (segmentStart[at] > from) draw(from, segmentStart[at]);
    from = Math.max(from, segmentEnd[at]);
  }
  if (from < to) draw(from, to);
}

/** Whether a run hides some of its communication, and no rank comes last: then waits are the point. */
const isMarked = (run) => !lateRanks(run).length && hidesSome(unsplit(run));

/** Mark the exposed stretches in view. */
export function paintExposed(context, state) {
  const pixel = pixelOf(state);
  for (const { run: number, row, y, bar } of state.layout.rows) {
    const run = state.runs[number];
    if (row.lane !== COMMUNICATION || bar <= 2 * EDGE || !isMarked(run)) continue;
    const [t0, t1] = windowOf(state, number);
    const stop = lowerBound(run.segmentStart, row.from, row.to, t1);
    for (let s = Math.max(row.from, lowerBound(run.segmentStart, row.from, row.to, t0) - 1); s < stop; s++) {
      if (run.segmentCategory[s] === BLOCKED || (run.segmentEnd[s] - run.segmentStart[s]) / pixel < 1) continue;
      eachExposed(run, row, s, (from, to) => {
        const wide = (to - from) / pixel;
        if (wide < 1) return;
        const x = LEFT + (from - t0) / pixel;
        context.fillStyle = state.theme.paper;
        if (holdsNames(bar)) context.fillRect(x, y + bar - EDGE - 1, wide, 1);
        context.fillStyle = state.theme.alarm;
        context.fillRect(x, y + bar - EDGE, wide, EDGE);
        state.marks.add("exposed");
      });
    }
  }
}
