// What a placed schedule costs: its bubble and its parts, what it holds in memory, what decided its end.

import { least, most, sum } from "../figure/numbers.js";
import { ended, nameOf, needsOf } from "./operations.js";

/** Parts of the idle time, in the order of their numbers. */
export const IDLE = ["warm-up", "steady", "drain"];

const FURTHEST = 5000;

/** The share of the stages' time in which they run nothing. */
export function bubbleOf(stages) {
  const whole = ended(stages) - least(stages.flatMap((row) => (row.length ? [row[0][1]] : [])));
  const busy = stages.map((row) => row.reduce((so, [, start, end]) => so + end - start, 0));
  return 1 - sum(busy) / (stages.length * whole);
}

/** Which part of the idle time an interval of a stage belongs to: before its first backward, after its last forward. */
function partOf(from, to, firstBackward, lastForward) {
  if (to <= firstBackward) return 0;
  return from >= lastForward ? 2 : 1;
}

/** [[stage, from, to, part of IDLE]] of the time in which a stage runs nothing. */
export function idleOf(stages) {
  const end = ended(stages);
  return stages.flatMap((placed, s) => {
    const firstBackward = placed.find(([[kind]]) => kind !== "F")?.[1] ?? end;
    const lastForward = most([0, ...placed.filter(([[kind]]) => kind === "F").map(([, , to]) => to)]);
    const begins = [...placed.map(([, start]) => start), end];
    return begins.flatMap((to, k) => {
      const from = placed[k - 1]?.[2] ?? 0;
      return to > from + 1e-12 * end ? [[s, from, to, partOf(from, to, firstBackward, lastForward)]] : [];
    });
  });
}

/** The operations, last first, that no other could have waited less for: [[stage, position], ...]. */
export function criticalPath(stages, tm = 0, vee) {
  const { needs } = needsOf(
    stages.map((placed) => placed.map(([operation]) => operation)),
    vee,
  );
  const places = stages.map((placed) => new Map(placed.map(([operation], k) => [nameOf(operation), k])));
  const endOf = ([s, k]) => stages[s][k][2];
  const find = (s, wanted) => [s, places[s].get(nameOf(wanted)) ?? -1];
  const lasts = stages.flatMap((placed, s) => (placed.length ? [[s, placed.length - 1]] : []));
  const path = [];
  let at = lasts.sort((a, b) => endOf(b) - endOf(a))[0];
  while (at && path.length < FURTHEST) {
    path.push(at);
    const [s, k] = at;
    const needed = needs(s, stages[s][k][0]).map(([t, wanted]) => find(t, wanted));
    const before = [...(k ? [[s, k - 1]] : []), ...needed].filter(([, position]) => position >= 0);
    const arrives = (one) => endOf(one) + (one[0] !== s ? tm : 0);
    at = before.reduce((a, b) => (!a || arrives(b) > arrives(a) + 1e-9 ? b : a), null);
  }
  return path;
}

/** [[time, microbatches held from then on]] of one stage of v chunks; a split backward lets go with its W. */
export function heldBy(placed, v) {
  const piece = ([, microbatch, chunk]) => `${microbatch},${chunk}`;
  const split = new Set(placed.filter(([[kind]]) => kind === "W").map(([operation]) => piece(operation)));
  const changes = new Map();
  const add = (time, by) => changes.set(time, (changes.get(time) ?? 0) + by / v);
  for (const [operation, start, end] of placed) {
    if (operation[0] === "F") add(start, 1);
    else if (operation[0] === "W" || !split.has(piece(operation))) add(end, -1);
  }
  let held = 0;
  return [...changes]
    .sort((a, b) => a[0] - b[0])
    .map(([time, by]) => {
      held = Number((held + by).toFixed(6));
      return [time, held];
    });
}

/** The most that a stage holds. */
export const peakOf = (held) => most([0, ...held.map(([, microbatches]) => microbatches)]);
