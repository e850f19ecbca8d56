// The runs as a Chrome trace, laid out as labkit/timeline/chrome.py does.

import { labelOf } from "./kinds.js";
import { LANES } from "./row_names.js";
import { unsplit } from "./unsplit.js";
import { named } from "./words.js";

const FIRST_PROCESS = 1000;
const PROCESSES_OF_A_RUN = 100000;
const MOST_THREADS = 999;

/** One run's events; the ranks of a second run are processes of their own. */
class Trace {
  /**
   * @param {object[]} events Where they are written.
   * @param {number} number Which run it is.
   * @param {number} shift By how much it is later, ns.
   */
  constructor(events, run, number, shift) {
    this.events = events;
    this.run = run;
    this.number = number;
    this.shift = shift;
    this.threads = []; // { pid, tid } of each event
  }

  process(rank) {
    return FIRST_PROCESS + PROCESSES_OF_A_RUN * this.number + rank;
  }

  /** A time in the trace, us. */
  at(time) {
    return (time + this.shift) / 1000;
  }

  tell(pid, tid, name, args) {
    this.events.push({ ph: "M", name, pid, tid, args });
  }

  write() {
    for (const row of this.run.rows) this.writeRow(row);
    for (const rank of this.run.memory) this.writeMemory(rank);
    this.run.flow_from.forEach((from, id) => this.writeMessage(id, from, this.run.flow_to[id]));
  }

  /** Spans that overlap without one holding the other go to further threads. */
  writeRow({ rank, lane, first, last }) {
    const { run } = this;
    const pid = this.process(rank);
    const thread = (k) => 10000 * pid + 1000 * lane + Math.min(k, MOST_THREADS);
    const open = []; // for each thread the ends of the spans under way, the innermost last
    this.tell(pid, 0, "process_name", { name: named(run, `rank ${rank}`) });
    this.tell(pid, 0, "process_sort_index", { sort_index: pid });
    for (let i = first; i < last; i++) {
      const k = threadFor(open, run.start[i], run.end[i]);
      open[k].push(run.end[i]);
      this.threads[i] = { pid, tid: thread(k) };
      this.writeSpan(i, LANES[lane]);
    }
    open.forEach((_, k) => {
      this.tell(pid, thread(k), "thread_name", { name: LANES[lane] + (k ? ` ${k + 1}` : "") });
    });
  }

  writeSpan(i, lane) {
    const { run, events } = this;
    const [name, kind, , peer, source] = labelOf(run, i);
    const args = { kind, bytes: run.bytes[i], ...(peer >= 0 && { peer }), ...(source && { source }) };
    const dur = Math.max(run.duration[i], 1) / 1000;
    const title = `${kind === "wait" ? kind : lane}/${name}`;
    events.push({ ph: "X", ...this.threads[i], cat: lane, name: title, ts: this.at(run.start[i]), dur, args });
  }

  writeMemory(rank) {
    const held = this.run[`memory_held_${rank}`];
    const place = { pid: this.process(rank), tid: 0 };
    this.run[`memory_time_${rank}`].forEach((time, i) => {
      this.events.push({ ph: "C", name: "memory (bytes)", ...place, ts: this.at(time), args: { held: held[i] } });
    });
  }

  writeMessage(id, from, to) {
    const { events, run, threads } = this;
    const message = { id: `${this.number} ${id}`, cat: "comm", name: "message" };
    const arrives = Math.max(run.start[from], run.start[to]);
    events.push({ ph: "s", ...message, ...threads[from], ts: this.at(run.start[from]) });
    events.push({ ph: "f", bp: "e", ...message, ...threads[to], ts: this.at(arrives) });
  }
}

/** The first thread on which a span lies within those that are under way, or after all of them. */
function threadFor(open, start, end) {
  for (let k = 0; ; k++) {
    open[k] ??= [];
    const ends = open[k];
    while (ends.length && ends.at(-1) <= start) ends.pop();
    if (!ends.length || end <= ends.at(-1)) return k;
  }
}

/** The trace as JSON; runs are as far apart as in the view, and no time is negative. */
export function toChrome({ runs, offset }) {
  const events = [];
  runs.forEach((run, number) => {
    new Trace(events, unsplit(run), number, Math.max(number ? offset : -offset, 0)).write();
  });
  return JSON.stringify({ traceEvents: events, displayTimeUnit: "ns" });
}
