// An asynchronous parameter server: who reads and applies which version when, and what that costs in loss.

import { least, range, sum } from "../figure/numbers.js";

/**
 * A gradient; it is dropped where it was staler than allowed.
 *
 * @typedef {[worker: number, read: number, applied: number, start: number, end: number, dropped: number]} Update
 */

const STEEPNESS = [1, 0.1];
const START = [3, 3];

/** Of "delay d": none begins before all are in that were begun more than d before it. NaN of other policies. */
export const delayOf = (bound) => Number(`${bound}`.split(" ")[1]);

/** Numbers of 0 to 1 that are the same in every run (mulberry32). */
export function draws(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 1831565813) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** How long a gradient takes, of a number of 0 to 1, in units of the mean. */
function lengthOf(law, drawn) {
  if (law === "equal") return 1;
  return law === "exponential" ? -Math.log(1 - drawn) : 0.75 + 0.5 * drawn;
}

/** Workers and the one version they share, gradient by gradient. */
class Server {
  constructor({ workers, bound, straggler, delay, seed, drop, law }) {
    Object.assign(this, { bound, straggler, delay, drop, law });
    this.next = draws(seed);
    this.isSync = bound === "sync";
    this.within = delayOf(bound);
    this.pushes = Array(workers).fill(0); // of each worker
    this.busy = []; // gradients under way
    this.waiting = range(workers);
    this.version = 0;
    this.applied = 0;
    this.begun = 0;
  }

  /** Whether a worker may not begin yet. */
  mustWait(worker, wereAllIdle, slowest) {
    if (this.isSync) return !wereAllIdle;
    if (this.pushes[worker] - slowest > this.bound) return true;
    return this.begun - least(this.busy.map(({ number }) => number)) > this.within;
  }

  /** Let all who may begin their next gradient at this time. */
  begin(start) {
    const wereAllIdle = !this.busy.length;
    const slowest = least(this.pushes);
    this.waiting = this.waiting.filter((worker) => {
      if (this.mustWait(worker, wereAllIdle, slowest)) return true;
      const length = (worker ? 1 : this.straggler) * lengthOf(this.law, this.next());
      const end = start + length + this.delay;
      this.busy.push({ worker, number: this.begun, start, read: this.version, end });
      this.begun += 1;
      return false;
    });
  }

  /**
   * Take the gradient that comes in next; of two at once that of the worker with the smaller number.
   *
   * @returns {Update}
   */
  take() {
    const isBefore = (a, b) => a.end < b.end || (a.end === b.end && a.worker < b.worker);
    const now = this.busy.reduce((a, b) => (isBefore(b, a) ? b : a));
    const isLate = this.version - now.read > this.drop;
    const update = [now.worker, now.read, this.version, now.start, now.end, Number(isLate)];
    this.busy = this.busy.filter((each) => each !== now);
    this.pushes[now.worker] += 1;
    this.waiting.push(now.worker);
    if (!isLate) this.applied += 1;
    if (this.isSync ? !this.busy.length : !isLate) this.version += 1;
    this.begin(now.end + this.delay);
    return update;
  }
}

/**
 * The gradients until `count` of them are applied. A worker may be `bound` pushes ahead of the slowest; of "sync" all
 * wait for all.
 *
 * @returns {Update[]}
 */
export function simulate(values, count = 60) {
  const server = new Server(values);
  const updates = [];
  server.begin(0);
  while (server.applied < count) updates.push(server.take());
  return updates;
}

/** What a version's update is divided by; of a synchronous version, applied by several at once, the mean counts. */
function divisor(divided, workers, together, staleness) {
  if (together > 1) return together;
  return { workers, staleness: Math.max(1, staleness) }[divided] ?? 1;
}

/** Loss of a slope (steepness 1 and 0.1, noisy gradients) trained by these: [end, updates, loss] for each version. */
export function losses(all, { workers, lr, divided, seed }) {
  const updates = all.filter(([, , , , , dropped]) => !dropped);
  const next = draws(seed + 1000);
  const together = {};
  for (const [, , applied] of updates) together[applied] = (together[applied] ?? 0) + 1;
  const history = [START];
  let weights = START;
  return updates.flatMap(([, read, applied, , end], k) => {
    const rate = lr / divisor(divided, workers, together[applied], applied - read);
    const old = history[read];
    weights = weights.map((weight, d) => weight - rate * (STEEPNESS[d] * old[d] + next() - 0.5));
    history[applied + 1] = weights;
    if (updates[k + 1]?.[2] === applied) return [];
    return [[end, k + 1, sum(weights.map((weight, d) => (STEEPNESS[d] * weight * weight) / 2))]];
  });
}

/** For each gradient, how many pushes its worker had more than the slowest when it was begun. */
export function aheadOf(updates, workers) {
  return updates.map(([worker, , , start]) => {
    const pushed = Array(workers).fill(0);
    for (const [other, , , , end] of updates) if (end <= start) pushed[other] += 1;
    return pushed[worker] - least(pushed);
  });
}
