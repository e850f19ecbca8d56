// What part of time is covered, by which category: what is painted and what is counted.

import { BLOCKED, REGION } from "./kinds.js";
import { lowerBound } from "./search.js";

/** How much of sorted intervals with running sums lies before a time. */
export function before(begins, ends, sums, from, to, time) {
  const at = lowerBound(begins, from, to, time) - 1;
  return at < from ? 0 : sums[at] + Math.min(ends[at], time) - begins[at];
}

/** How much of the row's time in [t0, t1) is work, ns: time in which its rank stands still is none. */
export function rowBusy(run, row, t0, t1) {
  if (!row) return 0;
  const { segmentStart, segmentEnd, segmentCategory, covered } = run;
  const until = (time) => {
    const at = lowerBound(segmentStart, row.from, row.to, time) - 1;
    if (at < row.from) return 0;
    if (segmentCategory[at] === BLOCKED) return covered[at];
    return covered[at] + Math.min(segmentEnd[at], time) - segmentStart[at];
  };
  return until(t1) - until(t0);
}

/** Add to `shares` (columns x categories, column first) what part of each column's time each category fills. */
export function shareMatrix(run, row, t0, t1, columns, categories, shares) {
  const { segmentStart, segmentEnd, segmentCategory } = run;
  const scale = columns / (t1 - t0);
  const stop = lowerBound(segmentStart, row.from, row.to, t1);
  let s = Math.max(row.from, lowerBound(segmentStart, row.from, row.to, t0) - 1);
  for (; s < stop; s++) {
    const x0 = Math.max((segmentStart[s] - t0) * scale, 0);
    const x1 = Math.min((segmentEnd[s] - t0) * scale, columns);
    if (x1 <= x0) continue;
    const c = segmentCategory[s];
    const end = x1 | 0;
    let x = x0 | 0;
    if (x === end) {
      shares[x * categories + c] += x1 - x0;
      continue;
    }
    shares[x * categories + c] += x + 1 - x0;
    for (x++; x < end; x++) shares[x * categories + c] += 1;
    if (end < columns) shares[end * categories + c] += x1 - end;
  }
  return shares;
}

/** How long the ranks together were in each category in [t0, t1), ns. */
export function categoryTimes(run, t0, t1) {
  const shares = new Float64Array(run.categories.length);
  for (const row of run.rows) if (row.lane !== REGION) shareMatrix(run, row, t0, t1, 1, shares.length, shares);
  return shares.map((share) => share * (t1 - t0));
}

/** The most a rank's memory held in each of the columns of [t0, t1). */
export function memoryColumns({ time, held }, t0, t1, columns) {
  const most = new Float64Array(columns);
  let i = Math.max(lowerBound(time, 0, time.length, t0) - 1, 0);
  let now = 0;
  for (let x = 0; x < columns; x++) {
    const stop = t0 + ((x + 1) * (t1 - t0)) / columns;
    most[x] = now;
    for (; i < time.length && time[i] < stop; i++) {
      most[x] = Math.max(most[x], held[i]);
      now = held[i];
    }
  }
  return most;
}
