// One run of a server at one of its updates: what the picture and the numbers are made from.

import { most, range } from "../figure/numbers.js";
import { aheadOf, delayOf } from "./server.js";

const LEFT = 94;
const RIGHT = 130;

/** When the picture ends: with the run, or of measured runs with the last of them. */
function endOf(runs, run) {
  const all = run.timed && runs ? runs.filter(({ timed }) => timed).flatMap(({ updates }) => updates) : run.updates;
  return most(all.map(([, , , , end]) => end));
}

export class Position {
  /**
   * @param {object} run
   * @param {object[] | undefined} runs Those that were measured.
   */
  constructor(run, runs, values, step, width) {
    const { updates, bound } = run;
    this.run = run;
    this.updates = updates;
    this.values = values;
    this.step = step;
    this.width = width;
    this.left = LEFT;
    this.wide = width - LEFT - RIGHT;
    this.end = endOf(runs, run);
    this.shown = updates[step - 1];
    this.count = 1 + most(updates.map(([worker]) => worker));
    this.taus = updates.map(([, read, applied]) => applied - read);
    this.late = runs ? 0 : values.delay; // how long a message is under way
    this.within = delayOf(values.bound);
    this.isLimited = Number.isInteger(bound);
    this.ahead = aheadOf(updates, this.count);
    this.span = most([0, ...updates.slice(0, step).map(([, , , , end]) => end)]);
    this.versions = new Map(updates.flatMap((update, k) => (update[5] ? [] : [[update[2], k]])));
    this.missed = this.missedVersions();
    this.workers = range(this.count).map((worker) => this.worker(worker));
    const used = updates.map((update, k) => [update, this.taus[k]]).filter(([[, , , , , dropped]]) => !dropped);
    this.highest = most([1, ...used.map(([, tau]) => tau)]);
    const applied = updates.slice(0, step).filter(([, , , , , dropped]) => !dropped).length;
    this.done = used.slice(0, applied).map(([, tau]) => tau); // staleness of what was applied so far
  }

  x(time) {
    return this.left + (time / this.end) * this.wide;
  }

  /** Whether an update lies ahead of where the reader stands. */
  isLater(k) {
    return k >= this.step;
  }

  /** [version, update] of those that the chosen gradient did not know of. */
  missedVersions() {
    if (!this.shown) return [];
    const [, read, applied] = this.shown;
    return [...this.versions].filter(([version]) => version >= read && version < applied);
  }

  /** A worker's gradients with what it did before each, and its time in all and at work. */
  worker(worker) {
    let last = 0;
    let busy = 0;
    const own = this.updates.map((update, k) => ({ update, k })).filter(({ update }) => update[0] === worker);
    const turns = own.map(({ update, k }) => {
      const [, , , start, end] = update;
      const turn = { update, k, before: last, pulled: start - (start && this.late), pushed: end - this.late };
      last = end;
      busy += last - turn.pulled;
      return turn;
    });
    const held = own.findLast(({ update, k }) => update[3] < this.span || !this.isLater(k));
    return { worker, turns, busy, all: last, held: held?.update[1] ?? 0 };
  }

  /** "Update 3: worker 1 read version 0, applied to version 2: staleness 2". */
  name(k) {
    const [worker, read, applied, , , dropped] = this.updates[k];
    const where = `${dropped ? "dropped at" : "applied to"} version ${applied}`;
    return `Update ${k}: worker ${worker} read version ${read}, ${where}: staleness ${this.taus[k]}`;
  }
}
