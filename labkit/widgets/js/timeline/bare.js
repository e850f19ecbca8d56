// Rows that say next to nothing: lanes in which hardly anything is, and brackets whose names the colours tell, too.

import { COMMUNICATION, COMPUTE, HOST, REGION, isKnownOf, labelOf } from "./kinds.js";
import { once } from "./once.js";
import { rowBusy } from "./shares.js";

/** What part of the time is next to nothing, and little beside another run. */
const NOTHING = 0.005;
const LITTLE = 0.02;

/** The lanes in which no rank of a run works or stands still for longer than that, where others hold more. */
export const bareLanes = once((run) => {
  const isBare = (lane) => run.rows.every((row) => row.lane !== lane || timeIn(run, row) < NOTHING * run.span);
  const used = [COMPUTE, COMMUNICATION, HOST].filter((lane) => run.rows.some((row) => row.lane === lane));
  const found = used.filter(isBare);
  return new Set(found.length < used.length ? found : []);
});

function timeIn(run, row) {
  const { sums } = run.ranks.get(row.rank).blocked;
  return rowBusy(run, row, 0, run.span) + (row.lane === COMMUNICATION ? sums.at(-1) : 0);
}

/** Names of regions that the colours of what runs in them say, too; labkit/widgets/layout.py has the same. */
const COLOURED = new Set(["forward", "backward", "optimizer"]);

/** Whether a run's brackets say no more than its colours. */
export const areColoured = once((run) => {
  const rows = run.rows.filter(({ lane }) => lane === REGION);
  const isColoured = ({ first, last }) => {
    for (let i = first; i < last; i++) if (!COLOURED.has(labelOf(run, i)[0])) return false;
    return true;
  };
  return isKnownOf(run) && rows.every(isColoured);
});

/** Whether a rank computes for next to no time in a lane that others fill. */
export const isNearlyBare = (run, row) => row.lane === COMPUTE && timeIn(run, row) < LITTLE * run.span;
