// What makes one of two runs longer than the other; labkit/widgets/comparison.py says the same of a picture.

import { meanTimes } from "./numbers.js";
import { lasted } from "./words.js";

const MOST = 0.5; // of the difference in length: what is more of it is the cause
const AGAINST = 0.25; // where more goes the other way, no one thing is
const ALONE = 2; // times as long as the mean rank moves bytes who is the only way for them
const CAUSES = [
  ["compute", "ranks compute less", "ranks compute longer"],
  ["exposed", "less communication is exposed", "more communication is exposed"],
  ["blocked", "ranks wait less", "ranks wait longer"],
];

/** Whether one rank moves bytes for much longer than the others do. */
const isNarrow = ({ busiest, moving }) => busiest >= ALONE * moving;

/** Bytes that queue at one rank in the longer run alone, where that makes most of the difference; else "". */
function narrowest(before, after, change) {
  const [shorter, longer] = change < 0 ? [after, before] : [before, after];
  const isIt = isNarrow(longer) && !isNarrow(shorter) && longer.busiest - shorter.busiest > MOST * Math.abs(change);
  if (!isIt) return "";
  return `, mostly because bytes ${change < 0 ? "no longer queue" : "queue"} at rank ${longer.where}`;
}

/** What more than half of the difference is from, in words; "" where no one thing is. */
export function causeOf(run, other) {
  const [before, after] = [meanTimes(run), meanTimes(other)];
  const change = lasted(other) - lasted(run);
  const queue = narrowest(before, after, change);
  if (queue) return queue;
  const shares = CAUSES.map(([part]) => (after[part] - before[part]) / change || 0); // what is not known makes none
  const all = [...shares, 1 - shares.reduce((sum, share) => sum + share)]; // and what ranks do besides
  const against = all.reduce((sum, share) => sum - Math.min(share, 0), 0);
  const most = shares.indexOf(Math.max(...shares));
  return shares[most] <= MOST || against > AGAINST ? "" : `, mostly because ${CAUSES[most][change < 0 ? 1 : 2]}`;
}
