// The ring all-reduce as steps: what each rank sends, what it then holds, and when.
// Contributions are a mask: bit r stands for what rank r began with.

import { range } from "../figure/numbers.js";

/**
 * @typedef {[source: number, chunk: number, target: number, into: number, wrong: number]} Send
 * @typedef {[rank: number, chunk: number, mask: number, wrong: number]} Write
 * @typedef {{ sends: Send[], writes: Write[] }} Step
 * @typedef {{ size: number, latency: number, bandwidth: number, slow?: number, chunks?: number }} Link
 */

/** a modulo n, never below 0. */
export const mod = (a, n) => ((a % n) + n) % n;

/** How many contributions a mask holds. */
export const count = (mask) => mask.toString(2).replaceAll("0", "").length;

/** Whether a chunk, as [mask, wrong], holds all of n contributions. */
export const isComplete = ([mask, wrong], n) => count(mask) === n && !wrong;

/** The contributions of `many` neighbours from rank `first` on. */
function maskOf(first, many, n) {
  let mask = 0;
  for (let k = 0; k < many; k++) mask |= 1 << mod(first + k, n);
  return mask;
}

/**
 * The steps of n ranks. More chunks than ranks take turns.
 *
 * @returns {Step[]}
 */
export function ringSteps(n, chunks = n) {
  const turns = Math.ceil(chunks / n);
  return range(2 * (n - 1) * turns).map((at) => {
    const s = Math.floor(at / turns);
    const step = { sends: [], writes: [] };
    for (const rank of range(n)) {
      const first = s < n - 1 ? mod(rank - s, n) : mod(rank + n - s, n);
      const chunk = first + (at % turns) * n;
      if (chunk >= chunks) continue;
      const target = (rank + 1) % n;
      step.sends.push([rank, chunk, target, chunk, 0]);
      step.writes.push([target, chunk, maskOf(first, Math.min(s + 2, n), n), 0]);
    }
    return step;
  });
}

/** state[rank][chunk] = [mask of contributions, wrong] before step `upto`. */
export function stateBefore(steps, n, upto, chunks = n) {
  const state = range(n).map((rank) => range(chunks).map(() => [1 << rank, 0]));
  for (const { writes } of steps.slice(0, upto)) {
    for (const [rank, chunk, mask, wrong] of writes) state[rank][chunk] = [mask, wrong];
  }
  return state;
}

/**
 * When each transfer is under way; a step begins when both ranks have ended the one before.
 *
 * @param {Step[]} steps
 * @param {Link} link The slow rank's link has a quarter of the bandwidth.
 * @returns {Array<[source: number, target: number, step: number, start: number, end: number]>}
 */
export function transferTimes(steps, n, { size, latency, bandwidth, slow, chunks = n }) {
  const ready = Array(n).fill(0);
  const times = [];
  steps.forEach(({ sends }, s) => {
    const ends = [...ready];
    for (const [source, , target] of sends) {
      const start = Math.max(ready[source], ready[target] ?? 0);
      const end = start + latency + ((source === slow ? 4 : 1) * size) / chunks / bandwidth;
      times.push([source, target, s, start, end]);
      for (const rank of [source, target]) if (rank in ends) ends[rank] = Math.max(ends[rank], end);
    }
    ends.forEach((end, rank) => {
      ready[rank] = end;
    });
  });
  return times;
}

/** Seconds of the whole by formula, on equal links. */
export function ringSeconds(n, { size, latency, bandwidth, chunks = n }) {
  return 2 * (n - 1) * Math.ceil(chunks / n) * (latency + size / chunks / bandwidth);
}
