// Waits that end when a late rank comes: also those that computing hides.

import { BLOCKED } from "./kinds.js";
import { lowerBound } from "./search.js";

export const MOST = 200; // waits of a row
export const NEAR = 0.05; // of a wait, by which who is waited for may come beside its end

/** Whether one of the late ranks begins to move bytes at that time. */
export function comesAt({ segmentStart, segmentCategory }, rows, time, near) {
  return rows.some(({ from, to }) => {
    const at = lowerBound(segmentStart, from, to, time - near);
    return at < to && segmentStart[at] <= time + near && segmentCategory[at] !== BLOCKED;
  });
}

/** [begin, end] of a row's waits from [t0, t1) that computing hides: of a call that moves once a late rank comes. */
export function hiddenWaits({ start, segmentStart, segmentEnd, segmentCategory }, row, late, [t0, t1], least = 1) {
  const found = [];
  const first = lowerBound(start, row.first, row.last, t0);
  for (let i = first; i < row.last && start[i] < t1 && i < first + MOST; i++) {
    const at = lowerBound(segmentEnd, row.from, row.to, start[i] + 1);
    const long = segmentStart[at] - start[i];
    if (at === row.to || long < least || found.at(-1)?.[1] === segmentStart[at]) continue;
    const moves = (segmentCategory[at] === BLOCKED ? segmentEnd : segmentStart)[at];
    if (comesAt({ segmentStart, segmentCategory }, late, moves, NEAR * long)) found.push([start[i], segmentStart[at]]);
  }
  return found;
}
