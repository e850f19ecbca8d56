// More ranks than are read one by one: which of them stand out from the others.

import { COMMUNICATION, COMPUTE } from "./kinds.js";
import { once } from "./once.js";
import { rowBusy } from "./shares.js";

const FEW = 8; // ranks whose rows are all read
const APART = 0.05; // of the middle rank's work: who differs by less does not stand out
const SPREADS = 5; // times the middle distance from the middle, for the same
const MOST = 6; // outliers that are shown apart

/** Whether so many ranks are shown as a cluster. */
export const isCluster = (ranks) => ranks > FEW;

const middleOf = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];

/** Who works longest, and who else works much longer or shorter than the middle rank: [[words, ranks]]. */
export const standouts = once((run) => {
  const lane = run.rows.some((row) => row.lane === COMPUTE && row.last > row.first) ? COMPUTE : COMMUNICATION;
  const work = [...run.ranks.values()].map(({ rank, lanes }) => [rank, rowBusy(run, lanes[lane], 0, run.span)]);
  const middle = middleOf(work.map(([, busy]) => busy));
  const distance = ([, busy]) => Math.abs(busy - middle);
  const far = Math.max(SPREADS * middleOf(work.map(distance)), APART * middle);
  const apart = work.filter((each) => distance(each) > far).sort((a, b) => distance(b) - distance(a));
  const slowest = apart.filter(([, busy]) => busy > middle).sort((a, b) => b[1] - a[1])[0];
  const others = apart.filter((each) => each !== slowest).slice(0, MOST);
  const what = lane === COMPUTE ? "computes" : "moves bytes";
  const told = [];
  if (slowest) {
    const much = middle ? `${(slowest[1] / middle).toPrecision(2)} × as long as the median rank` : "alone";
    told.push([`slowest: ${what} ${much}`, [slowest[0]]]);
  }
  if (others.length) told.push(["outliers", others.map(([rank]) => rank)]);
  return told;
});
