// What is computed once of a run's columns: disjoint segments, running sums, the union of rows, messages by event.

import { BLOCKED, COLLECTIVE, COMMUNICATION, REGION } from "./kinds.js";
import { lowerBound } from "./search.js";

/**
 * @typedef {object} Row
 * @property {number} rank
 * @property {number} lane
 * @property {number} first Its first event.
 * @property {number} last The one after its last.
 * @property {number} from Its first segment.
 * @property {number} to The one after its last.
 */

const SENDS = /^(i?send|rpc_a?sync|remote|to_here)$/;

/** Add to a run's columns what is computed from them; rows are [rank, lane, number of events]. */
export function complete(run, rows) {
  let last = 0;
  run.rows = rows.map(([rank, lane, count]) => {
    const first = last;
    last += count;
    return { rank, lane, first, last };
  });
  cutIntoSegments(run);
  addSums(run);
  joinRows(run);
  addBlocked(run);
  run.flowsOf = messagesOf(run);
  return run;
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

/** Whether no event of the row begins before the one before it ends. */
function areApart({ start, end }, { first, last }) {
  for (let i = first + 1; i < last; i++) if (end[i - 1] > start[i]) return false;
  return true;
}

/** Cut each row into disjoint segments, each with the event that owns it: the last begun of those that overlap. */
function cutIntoSegments(run) {
  const { start, end, category, rows } = run;
  const isWhole = !run.cut_event?.length && !run.blocked_start?.length;
  if (isWhole && rows.every((row) => areApart(run, row))) {
    const own = { segmentStart: start, segmentEnd: end, segmentCategory: category, owner: countTo(start.length) };
    Object.assign(run, own);
    for (const row of rows) Object.assign(row, { from: row.first, to: row.last });
    return;
  }
  const segments = { begins: [], ends: [], owners: [], categories: [] };
  const stills = stillsOf(run);
  for (const row of rows) {
    row.from = segments.begins.length;
    if (row.lane === COMMUNICATION && !isWhole) cutCalls(run, row, stills.get(row.rank), segments);
    else cutRow(run, row, segments);
    row.to = segments.begins.length;
  }
  run.segmentStart = Float64Array.from(segments.begins);
  run.segmentEnd = Float64Array.from(segments.ends);
  run.owner = Uint32Array.from(segments.owners);
  run.segmentCategory = Uint8Array.from(run.owner, (event, s) => segments.categories[s] ?? category[event]);
}

/** When each rank stands still: where its intervals begin and end in the columns. */
function stillsOf({ blocked = [] }) {
  const found = new Map();
  let at = 0;
  for (const [rank, count] of blocked) {
    found.set(rank, [at, at + count]);
    at += count;
  }
  return found;
}

/** Cut a row of calls: into those stretches in which bytes moved, and where the rank stood still into that. */
function cutCalls(run, row, still, segments) {
  const { begins, ends, owners, categories } = segments;
  const moving = { begins: [], ends: [], owners: [] };
  const moves = movesOf(run, row);
  cutRow(moves, { first: 0, last: moves.start.length }, moving);
  const [from, stop] = still ?? [0, 0];
  let next = from;
  let call = row.first;
  const addStill = (until) => {
    for (; next < stop && run.blocked_start[next] < until; next++) {
      const begin = run.blocked_start[next];
      while (call + 1 < row.last && run.start[call + 1] <= begin) call++;
      if (row.first === row.last) continue; // it waits for calls that are not shown
      begins.push(begin);
      ends.push(run.blocked_end[next]);
      owners.push(callAt(run, row, call, begin));
      categories[begins.length - 1] = BLOCKED;
    }
  };
  moving.begins.forEach((begin, s) => {
    addStill(begin);
    begins.push(begin);
    ends.push(moving.ends[s]);
    owners.push(moves.event[moving.owners[s]]);
  });
  addStill(Infinity);
}

/** The call that a rank stands in at a time: the last one begun by then that had not ended. */
function callAt({ end }, row, last, time) {
  for (let call = last; call >= row.first && call > last - 64; call--) if (end[call] > time) return call;
  return last;
}

/** Stretches in which the calls of a row moved bytes, as events of their own; `event` says whose they are. */
function movesOf(run, { first, last }) {
  const { start, end, cut_event: cuts, cut_start: from, cut_end: to } = run;
  const found = [];
  let cut = lowerBound(cuts, 0, cuts.length, first);
  for (let event = first; event < last; event++) {
    if (cuts[cut] !== event) found.push([start[event], end[event], event]);
    for (; cuts[cut] === event; cut++) if (to[cut] > from[cut]) found.push([from[cut], to[cut], event]);
  }
  found.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  return { start: found.map(([a]) => a), end: found.map(([, b]) => b), event: found.map(([, , event]) => event) };
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

/** Cut one row; `open` are the events under way, the last begun on top. */
function cutRow({ start, end }, { first, last }, { begins, ends, owners }) {
  const open = [];
  let now = -Infinity;
  const advance = (until) => {
    while (open.length && now < until) {
      const top = open[open.length - 1];
      const stop = Math.min(end[top], until);
      if (stop > now) {
        begins.push(now);
        ends.push(stop);
        owners.push(top);
        now = stop;
      }
      if (end[top] <= now) open.pop();
    }
    now = Math.max(now, until);
  };
  for (let i = first; i < last; i++) {
    advance(start[i]);
    open.push(i);
  }
  advance(Infinity);
}

/** Of which sum an event of this label is: 0 of sends, 1 of collectives, 2 of none. */
function sumOf([, kind, category]) {
  if (SENDS.test(kind)) return 0;
  return category === COLLECTIVE && kind !== "span" ? 1 : 2;
}

/** Add running sums: time covered before each segment, bytes and calls before each event; and the categories seen. */
function addSums(run) {
  const n = run.start.length;
  const seen = new Uint8Array(256);
  run.covered = new Float64Array(run.owner.length + 1);
  run.sums = [0, 1].map(() => ({ bytes: new Float64Array(n + 1), calls: new Uint32Array(n + 1) }));
  const sort = Uint8Array.from(run.labels, sumOf);
  for (const row of run.rows) {
    addCovered(run, row.lane === REGION ? new Uint8Array(256) : seen, row);
    for (const which of [0, 1]) addCalls(run, sort, which, row);
  }
  run.owned = new Set([...seen.keys()].filter((category) => seen[category]));
}

function addCovered({ segmentStart, segmentEnd, segmentCategory, covered }, seen, { from, to }) {
  let total = 0;
  for (let s = from; s < to; s++) {
    covered[s] = total;
    if (segmentCategory[s] !== BLOCKED) total += segmentEnd[s] - segmentStart[s];
    seen[segmentCategory[s]] = 1;
  }
}

function addCalls({ label, bytes: size, sums }, sort, which, { first, last }) {
  const { bytes, calls } = sums[which];
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
  for (const rank of run.ranks.values()) rank.busy = union(run, rank.lanes[0] ?? none, rank.lanes[1] ?? none);
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
