// The critical path: the blocks that it goes through are outlined, and a thin line leads from each to the next.

import { BLOCKED, COMMUNICATION, COMPUTE } from "./kinds.js";
import { pixelOf, shownFor, windowOf, xIn } from "./layout.js";
import { lowerBound } from "./search.js";
import { rowBusy } from "./shares.js";

const NARROW = 4; // pixels of a block under which its outline would be all there is to see

/** Call `draw` with each of the path's pieces in view: its begin and end, and the rank it comes from and lies on. */
function eachPiece(state, run, draw) {
  const { path_start: starts, path_end: ends, path_from: from, path_to: to } = state.runs[run].path;
  const [t0, t1] = windowOf(state, run);
  const rankShown = (rank) => (state.folded ? shownFor(state.runs[run], rank) : rank);
  for (let i = lowerBound(ends, 0, ends.length, t0); i < starts.length && starts[i] < t1; i++) {
    draw(starts[i], ends[i], rankShown(from[i]), rankShown(to[i]));
  }
}

/** Trace the path: along a rank's upper edge, and across where it changes ranks. */
function trace(context, state, run) {
  const own = state.layout.rows.filter((place) => place.run === run && place.first);
  const tops = new Map(own.map((place) => [place.row.rank, place.y - 3]));
  let pen = null;
  eachPiece(state, run, (start, end, from, to) => {
    const y0 = tops.get(from);
    const y1 = tops.get(to);
    if (y0 === undefined || y1 === undefined) {
      pen = null;
      return;
    }
    const x0 = Math.max(xIn(state, run, start), -10);
    const x1 = Math.min(xIn(state, run, end), state.width + 10);
    if (pen !== y0) context.moveTo(x0, y0);
    context.lineTo(x0, y1);
    context.lineTo(x1, y1);
    pen = y1;
  });
}

/** Outline the blocks of a rank that the path goes through in [a, b): where it computes that, else what it calls. */
function outline(context, state, places, [a, b]) {
  const [{ run: number }] = places;
  const run = state.runs[number];
  const pixel = pixelOf(state);
  const computing = places.find(({ row }) => row.lane === COMPUTE)?.row;
  for (const { row, y, bar } of places) {
    for (let s = lowerBound(run.segmentEnd, row.from, row.to, a); s < row.to && run.segmentStart[s] < b; s++) {
      const from = Math.max(run.segmentStart[s], a);
      const until = Math.min(run.segmentEnd[s], b);
      if ((until - from) / pixel < NARROW || run.segmentCategory[s] === BLOCKED) continue;
      if (row !== computing && computing && rowBusy(run, computing, from, until) > (until - from) / 2) continue;
      context.rect(xIn(state, number, from) + 1, y + 1, (until - from) / pixel - 2, bar - 2);
    }
  }
}

/** Draw the critical path of a run. */
export function paintPath(context, state, run) {
  const ranks = new Map();
  for (const place of state.layout.rows) {
    const { rank, lane } = place.row;
    if (place.run !== run || (lane !== COMPUTE && lane !== COMMUNICATION)) continue;
    ranks.set(rank, [...(ranks.get(rank) ?? []), place]);
  }
  context.strokeStyle = state.theme.path;
  context.lineJoin = "round";
  context.lineWidth = 1.5;
  context.beginPath();
  trace(context, state, run);
  context.stroke();
  context.lineWidth = 2.5;
  context.beginPath();
  const [t0, t1] = windowOf(state, run);
  const beyond = 5 * pixelOf(state); // an edge out of view is not drawn at the view's edge
  eachPiece(state, run, (start, end, from, to) => {
    const seen = [Math.max(start, t0 - beyond), Math.min(end, t1 + beyond)];
    if (ranks.has(to)) outline(context, state, ranks.get(to), seen);
  });
  context.stroke();
  context.lineWidth = 1;
}
