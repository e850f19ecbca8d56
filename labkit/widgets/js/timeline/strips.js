// A run in one row: in every column the part of its ranks that compute, whose calls move bytes, that are blocked.

import { BLOCKED, COMMUNICATION, COMPUTE } from "./kinds.js";
import { shareMatrix } from "./shares.js";

/** A row that stands for all rows of a run; no event lies in it. */
export const stripOf = (run) => ({
  rank: run.rows[0]?.rank ?? 0,
  lane: COMPUTE,
  first: 0,
  last: 0,
  from: 0,
  to: 0,
  longest: 0,
  of: [...run.ranks.values()].map(({ lanes }) => [lanes[COMPUTE], lanes[COMMUNICATION]]),
});

function columnsOf(run, row, t0, t1, columns, categories) {
  const shares = new Float64Array(columns * categories);
  return row ? shareMatrix(run, row, t0, t1, columns, categories, shares) : shares;
}

/** Add one column of one rank: what it computes, of its calls what that does not hide. */
function addColumn(shares, at, computing, moving, categories, weight) {
  let left = 1;
  for (let c = 0; c < categories; c++) left -= computing[at + c];
  const take = (c) => {
    const part = Math.max(Math.min(moving[at + c], left), 0);
    left -= part;
    shares[at + c] += (computing[at + c] + part) * weight;
  };
  for (let c = 0; c < categories; c++) if (c !== BLOCKED) take(c);
  if (BLOCKED < categories) take(BLOCKED); // what stands still does neither
}

/** Add to `shares` what part of the ranks' time each category fills: what a rank computes hides what its calls do. */
export function stripShares(run, { of }, t0, t1, columns, categories, shares) {
  for (const [work, calls] of of) {
    const computing = columnsOf(run, work, t0, t1, columns, categories);
    const moving = columnsOf(run, calls, t0, t1, columns, categories);
    for (let x = 0; x < columns; x++) addColumn(shares, x * categories, computing, moving, categories, 1 / of.length);
  }
  return shares;
}
