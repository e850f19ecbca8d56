// What makes one of two runs longer than the other; labkit/widgets/comparison.py says the same of a picture.

import { meanTimes } from "./numbers.js";
import { lasted } from "./words.js";

const MOST = 0.5; // of the difference in length: what makes more of it is its cause
const CAUSES = [
  ["compute", "ranks compute less", "ranks compute longer"],
  ["exposed", "less communication is exposed", "more communication is exposed"],
  ["blocked", "ranks wait less", "ranks wait longer"],
];

/** What makes more than half of the difference, in words; "" where no one thing does. */
export function causeOf(run, other) {
  const [before, after] = [meanTimes(run), meanTimes(other)];
  const change = lasted(other) - lasted(run);
  const shareOf = ([part]) => (after[part] - before[part]) / change || 0; // what is not known makes none of it
  const most = CAUSES.reduce((a, b) => (shareOf(b) > shareOf(a) ? b : a));
  return shareOf(most) > MOST ? `, mostly because ${most[change < 0 ? 1 : 2]}` : "";
}
