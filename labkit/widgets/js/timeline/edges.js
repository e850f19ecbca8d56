// Which event lies at a time, and where events begin and end.

import { lowerBound } from "./search.js";

/** The event painted at this time in the row, or the nearest within `reach` ns, else -1. */
export function hit(run, row, time, reach = 0) {
  const { segmentStart, segmentEnd, owner } = run;
  const at = lowerBound(segmentStart, row.from, row.to, time + 1e-9) - 1;
  let best = -1;
  let distance = reach;
  for (const s of [at, at + 1]) {
    if (s < row.from || s >= row.to) continue;
    const away = Math.max(segmentStart[s] - time, time - segmentEnd[s], 0);
    if (away === 0 && time < segmentEnd[s]) return owner[s];
    if (away > distance) continue;
    best = owner[s];
    distance = away;
  }
  return best;
}

/** Sorted edges of all rows of a run, as [array, from, to]. */
const edgesOf = (run) =>
  run.rows.flatMap((row) => [
    [run.start, row.first, row.last],
    [run.segmentEnd, row.from, row.to],
  ]);

/** The last begin or end of any event at or before the time, and the first at or after it; they are whole ns. */
function edgesAt({ runs, offset }, time) {
  const found = [-Infinity, Infinity];
  runs.forEach((run, number) => {
    const shift = number ? offset : 0;
    for (const [edges, from, to] of edgesOf(run)) {
      const last = lowerBound(edges, from, to, Math.floor(time - shift) + 1) - 1;
      const next = lowerBound(edges, from, to, time - shift);
      if (last >= from) found[0] = Math.max(found[0], edges[last] + shift);
      if (next < to) found[1] = Math.min(found[1], edges[next] + shift);
    }
  });
  return found;
}

/** The begin or end of an event nearest to the time, or the time itself beyond `reach` ns. */
export function snap(shown, time, reach) {
  const [last, next] = edgesAt(shown, time);
  const near = time - last < next - time ? last : next;
  return Math.abs(near - time) < reach ? near : time;
}

/** The next begin or end of an event after (direction 1) or before (-1) the time. */
export function nextEdge(shown, time, direction) {
  const edge = direction > 0 ? edgesAt(shown, Math.floor(time) + 1)[1] : edgesAt(shown, Math.ceil(time) - 1)[0];
  return Number.isFinite(edge) ? edge : time;
}
