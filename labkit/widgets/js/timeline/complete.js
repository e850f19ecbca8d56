// What is computed once of a run's columns: disjoint segments, running sums, the union of rows, messages by event.

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
const COLLECTIVE = 3; // the category

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
  const { start, end, rows } = run;
  if (rows.every((row) => areApart(run, row))) {
    Object.assign(run, { segmentStart: start, segmentEnd: end, owner: countTo(start.length) });
    for (const row of rows) Object.assign(row, { from: row.first, to: row.last });
    return;
  }
  const segments = { begins: [], ends: [], owners: [] };
  for (const row of rows) {
    row.from = segments.begins.length;
    cutRow(run, row, segments);
    row.to = segments.begins.length;
  }
  run.segmentStart = Float64Array.from(segments.begins);
  run.segmentEnd = Float64Array.from(segments.ends);
  run.owner = Uint32Array.from(segments.owners);
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
    addCovered(run, seen, row);
    for (const which of [0, 1]) addCalls(run, sort, which, row);
  }
  run.owned = new Set([...seen.keys()].filter((category) => seen[category]));
}

function addCovered({ segmentStart, segmentEnd, owner, category, covered }, seen, { from, to }) {
  let total = 0;
  for (let s = from; s < to; s++) {
    covered[s] = total;
    total += segmentEnd[s] - segmentStart[s];
    seen[category[owner[s]]] = 1;
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
    if (!run.ranks.has(row.rank)) run.ranks.set(row.rank, { rank: row.rank, lanes: [null, null, null] });
    run.ranks.get(row.rank).lanes[row.lane] = row;
  }
  const none = { from: 0, to: 0 };
  for (const rank of run.ranks.values()) rank.busy = union(run, rank.lanes[0] ?? none, rank.lanes[1] ?? none);
}

function union({ segmentStart, segmentEnd }, a, b) {
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
