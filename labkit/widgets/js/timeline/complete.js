// What is computed once of a run's columns: for the picture disjoint segments and running sums; for what waits until it
// is seen the union of rows, bytes and calls, messages by event.

import { BLOCKED, COLLECTIVE, REGION } from "./kinds.js";
import { addCovered, cutIntoSegments, stillsOf } from "./segments.js";

/**
 * @typedef {object} Row
 * @property {number} rank
 * @property {number} lane
 * @property {number} first Its first event.
 * @property {number} last The one after its last.
 * @property {number} from Its first segment.
 * @property {number} to The one after its last.
 */

const RECEIVES = /^i?recv$/;
const SENDS = /^(i?send|rpc_a?sync|remote|to_here)$/;

/** Give an object a property that is computed when it is first asked for: the picture does not wait for it. */
function addLater(object, name, compute) {
  const keep = (value) => Object.defineProperty(object, name, { value, writable: true, configurable: true }) && value;
  Object.defineProperty(object, name, { get: () => keep(compute()), configurable: true });
}

/** Add to a run's columns what is computed from them; rows are [rank, lane, number of events]. */
export function complete(run, rows) {
  let last = 0;
  run.rows = rows.map(([rank, lane, count]) => {
    const first = last;
    last += count;
    return { rank, lane, first, last };
  });
  const seen = new Uint8Array(256);
  if (!spreadRows(run, seen)) {
    cutIntoSegments(run);
    addCovered(run, seen.fill(0));
  }
  run.owned = new Set([...seen.keys()].filter((category) => seen[category]));
  joinRows(run);
  addBlocked(run);
  addLater(run, "sums", () => callSums(run));
  addLater(run, "flowsOf", () => messagesOf(run));
  return run;
}

// Loops over events stand in functions that are called for each row: an engine compiles a function at its next call,
// and a page that has just been opened would run one loop over all events to its end uncompiled.

/** Fill in ends and categories, and of events that are segments as they are all there is of these; false where not. */
function spreadRows(run, seen) {
  const { start, duration, label, labels, rows } = run;
  const n = start.length;
  run.end = new Float64Array(n);
  run.category = new Uint8Array(n);
  run.covered = new Float64Array(n + 1);
  const categoryOf = Uint8Array.from(labels, ([, , category]) => category);
  let areApart = !run.cut_event?.length && !run.blocked_start?.length;
  for (const row of rows) {
    const seenHere = row.lane === REGION ? new Uint8Array(256) : seen;
    areApart = spread(run, start, duration, label, categoryOf, row, seenHere) && areApart;
  }
  if (!areApart) return false;
  Object.assign(run, { segmentStart: start, segmentEnd: run.end, segmentCategory: run.category });
  addLater(run, "owner", () => countTo(n));
  for (const row of rows) Object.assign(row, { from: row.first, to: row.last });
  return true;
}

/** Fill that in for one row; whether no event begins before the one before it ends. */
function spread({ end, category, covered }, start, duration, label, categoryOf, row, seen) {
  let total = 0;
  let longest = 0;
  let before = -Infinity;
  let areApart = true;
  for (let i = row.first; i < row.last; i++) {
    const long = duration[i];
    const own = categoryOf[label[i]];
    if (start[i] < before) areApart = false;
    if (long > longest) longest = long;
    covered[i] = total;
    if (own !== BLOCKED) total += long;
    before = start[i] + long;
    end[i] = before;
    category[i] = own;
    seen[own] = 1;
  }
  row.longest = longest;
  return areApart;
}

/** The row that holds an event. */
export const rowOf = (run, event) => run.rows.find(({ first, last }) => event >= first && event < last);

/** The row of another run that stands for the same lane of the same rank. */
export const twinOf = (run, { rank, lane }) => run.ranks.get(rank)?.lanes[lane];

/** Messages by each of the events they join. */
function messagesOf(run) {
  const found = new Map();
  for (let message = 0; message < run.flow_from.length; message++) {
    for (const event of [run.flow_from[message], run.flow_to[message]]) {
      const known = found.get(event);
      if (known) known.push(message);
      else found.set(event, [message]);
    }
  }
  return found;
}

function countTo(n) {
  const numbers = new Uint32Array(n);
  for (let i = 0; i < n; i++) numbers[i] = i;
  return numbers;
}

/** Give each rank the time it stands still, as sorted intervals with sums. */
function addBlocked(run) {
  const stills = stillsOf(run);
  for (const rank of run.ranks.values()) {
    const [from, to] = stills.get(rank.rank) ?? [0, 0];
    const begins = (run.blocked_start ?? []).slice(from, to);
    const ends = (run.blocked_end ?? []).slice(from, to);
    const sums = new Float64Array(begins.length + 1);
    for (let i = 0; i < begins.length; i++) sums[i + 1] = sums[i] + ends[i] - begins[i];
    rank.blocked = { begins, ends, sums };
  }
}

/** Of which sum an event of this label is: 0 of sends, 1 of collectives, 2 of receives, 3 of none. */
function sumOf([, kind, category]) {
  if (SENDS.test(kind)) return 0;
  if (RECEIVES.test(kind)) return 2;
  return category === COLLECTIVE && kind !== "span" ? 1 : 3;
}

/** Bytes and calls before each event, of sends, of collectives and of receives. */
function callSums(run) {
  const n = run.start.length;
  const sums = [0, 1, 2].map(() => ({ bytes: new Float64Array(n + 1), calls: new Uint32Array(n + 1) }));
  const sort = Uint8Array.from(run.labels, sumOf);
  for (const row of run.rows) for (const which of [0, 1, 2]) addCalls(run, sums[which], sort, which, row);
  return sums;
}

function addCalls({ label, bytes: size }, { bytes, calls }, sort, which, { first, last }) {
  let total = bytes[first];
  let number = calls[first];
  for (let i = first; i < last; i++) {
    if (sort[label[i]] === which) {
      total += size[i];
      number++;
    }
    bytes[i + 1] = total;
    calls[i + 1] = number;
  }
}

/** Give each rank its computing and communicating rows and the union of the two, as sorted intervals with sums. */
function joinRows(run) {
  run.ranks = new Map();
  for (const row of run.rows) {
    if (!run.ranks.has(row.rank)) run.ranks.set(row.rank, { rank: row.rank, lanes: [null, null, null, null] });
    run.ranks.get(row.rank).lanes[row.lane] = row;
  }
  const none = { from: 0, to: 0 };
  for (const rank of run.ranks.values()) {
    addLater(rank, "busy", () => union(run, rank.lanes[0] ?? none, rank.lanes[1] ?? none));
  }
}

function union({ segmentStart, segmentEnd, segmentCategory }, a, b) {
  const most = a.to - a.from + b.to - b.from;
  const begins = new Float64Array(most);
  const ends = new Float64Array(most);
  const sums = new Float64Array(most + 1);
  let n = 0;
  let i = a.from;
  let j = b.from;
  let end = -Infinity;
  while (i < a.to || j < b.to) {
    const isOfA = j >= b.to || (i < a.to && segmentStart[i] <= segmentStart[j]);
    const s = isOfA ? i++ : j++;
    if (segmentCategory[s] === BLOCKED) continue;
    const start = segmentStart[s];
    const stop = segmentEnd[s];
    if (start > end) {
      begins[n] = start;
      ends[n] = stop;
      end = stop;
      n++;
      sums[n] = sums[n - 1] + stop - start;
    } else if (stop > end) {
      sums[n] += stop - end;
      ends[n - 1] = stop;
      end = stop;
    }
  }
  return { begins: begins.subarray(0, n), ends: ends.subarray(0, n), sums };
}
