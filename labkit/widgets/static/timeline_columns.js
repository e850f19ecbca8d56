// The record of one run as typed columns, and everything that is computed from it: shares, sums, hits, edges.
// Pure functions: no DOM, so that `node --test` runs them. Times are ns since the run's first span began.

/** Return the index of the first entry of the sorted array a[from..to) that is not below x. */
export function lowerBound(a, from, to, x) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (a[middle] < x) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** Return bytes in whatever they came as bytes. */
export const bytesOf = (view) => new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength);

/** Return a packed part with its columns as typed arrays (labkit/widgets/timeline_columns.py). */
export function unpack(packed) {
  const bytes = bytesOf(packed.columns), part = { ...packed };
  const buffer = bytes.byteOffset % 8 ? bytes.slice().buffer : bytes.buffer; // typed arrays need aligned bytes
  const base = bytes.byteOffset % 8 ? 0 : bytes.byteOffset;
  const types = { f8: Float64Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array };
  for (const [name, [type, offset, length]] of Object.entries(packed.layout)) {
    const sent = new types[type](buffer, base + offset, length), Wanted = /^label|^flow|_from|_to/.test(name) ? Uint32Array : Float64Array;
    part[name] = sent instanceof Wanted ? sent : new Wanted(sent);
  }
  return part;
}

/** Return a run from what Python packed. */
export function decode(packed) {
  const run = unpack(packed), n = run.start.length;
  run.end = new Float64Array(n);
  run.category = new Uint8Array(n);
  const categoryOf = Uint8Array.from(run.labels, (each) => each[2]);
  let at = 0;
  for (const [, , count] of packed.rows) spread(run, categoryOf, at, (at += count));
  return complete(run, packed.rows);
}

// Loops over events stand in functions that are called for each row: an engine compiles a function at its next call,
// and a page that has just been opened would run one loop over all events to its end uncompiled.

function spread({ start, duration, end, label, category }, categoryOf, from, to) {
  for (let i = from; i < to; i++) {
    end[i] = start[i] + duration[i];
    category[i] = categoryOf[label[i]];
  }
}

/** Return words about a run, after its name where it stands beside another. */
export const named = ({ name }, words, mark = " ") => [name, words].filter((word) => word !== "").join(mark);

/** Return the row that holds an event. */
export const rowOf = (run, event) => run.rows.find(({ first, last }) => event >= first && event < last);

/** Add to a run's columns what is computed from them; rows are [rank, lane, number of events]. */
function complete(run, rows) {
  let first = 0;
  run.rows = rows.map(([rank, lane, count]) => ({ rank, lane, first, last: (first += count) }));
  own(run);
  sum(run);
  join(run);
  run.flowsOf = new Map();
  for (let f = 0; f < run.flow_from.length; f++)
    for (const end of [run.flow_from[f], run.flow_to[f]]) {
      const known = run.flowsOf.get(end);
      if (known) known.push(f);
      else run.flowsOf.set(end, [f]);
    }
  return run;
}

/** Return a run with the events of another added, which were recorded later; messages are matched when it has ended. */
export function merge(run, more) {
  const labels = [...run.labels], known = new Map(labels.map((label, i) => [label.join("\n"), i]));
  const code = Uint32Array.from(more.labels, (label) => {
    const key = label.join("\n");
    if (!known.has(key)) known.set(key, labels.push(label) - 1);
    return known.get(key);
  });
  const later = { ...more, label: more.label.map((label) => code[label]) }, places = new Map();
  [run, later].forEach((of, which) => {
    for (const row of of.rows) {
      const key = row.rank * 3 + row.lane;
      if (!places.has(key)) places.set(key, [row, row].map(({ rank, lane }) => ({ rank, lane, first: 0, last: 0 })));
      places.get(key)[which] = row;
    }
  });
  const n = run.start.length + more.start.length;
  const merged = { ...run, labels, says: more.says, span: Math.max(run.span, more.span), start: new Float64Array(n), duration: new Float64Array(n), bytes: new Float64Array(n), end: new Float64Array(n), label: new Uint32Array(n), category: new Uint8Array(n), flow_from: new Uint32Array(), flow_to: new Uint32Array() };
  const copy = (of, first, last, at) => {
    for (const name of ["start", "duration", "bytes", "end", "label", "category"]) merged[name].set(of[name].subarray(first, last), at);
    return at + last - first;
  };
  let at = 0;
  const counts = [...places].sort(([a], [b]) => a - b).map(([, [a, b]]) => {
    // What began before anything new is copied in one go.
    const begin = at;
    let i = b.last > b.first ? lowerBound(run.start, a.first, a.last, later.start[b.first]) : a.last, j = b.first;
    at = copy(run, a.first, i, at);
    while (i < a.last && j < b.last) {
      const first = run.start[i] < later.start[j] || (run.start[i] === later.start[j] && run.end[i] >= later.end[j]);
      at = first ? copy(run, i, ++i, at) : copy(later, j, ++j, at);
    }
    at = copy(later, j, b.last, copy(run, i, a.last, at));
    return [a.rank, a.lane, at - begin];
  });
  return complete(merged, counts);
}

function countTo(n) {
  const numbers = new Uint32Array(n);
  for (let i = 0; i < n; i++) numbers[i] = i;
  return numbers;
}

/** Return whether no event of the row begins before the one before it ends. */
function apart({ start, end }, { first, last }) {
  for (let i = first + 1; i < last; i++) if (end[i - 1] > start[i]) return false;
  return true;
}

/** Cut each row into disjoint segments, each with the event that owns it: the last begun of those that overlap. */
function own(run) {
  const { start, end } = run;
  if (run.rows.every((row) => apart(run, row))) {
    Object.assign(run, { segmentStart: start, segmentEnd: end, owner: countTo(start.length) });
    for (const row of run.rows) Object.assign(row, { from: row.first, to: row.last });
    return;
  }
  const begins = [], ends = [], owners = [];
  for (const row of run.rows) {
    row.from = begins.length;
    const open = []; // events under way; the last begun is on top
    let now = -Infinity;
    const advance = (until) => {
      while (open.length && now < until) {
        const top = open[open.length - 1], stop = Math.min(end[top], until);
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
    for (let i = row.first; i < row.last; i++) {
      advance(start[i]);
      open.push(i);
    }
    advance(Infinity);
    row.to = begins.length;
  }
  run.segmentStart = Float64Array.from(begins);
  run.segmentEnd = Float64Array.from(ends);
  run.owner = Uint32Array.from(owners);
}

/** Add running sums: time covered before each segment, bytes and calls before each event; and the categories seen. */
function sum(run) {
  const n = run.start.length, seen = new Uint8Array(256);
  run.covered = new Float64Array(run.owner.length + 1);
  run.sums = [0, 1].map(() => ({ bytes: new Float64Array(n + 1), calls: new Uint32Array(n + 1) }));
  const sort = Uint8Array.from(run.labels, ([, kind, category]) => (/^(i?send|rpc_a?sync|remote|to_here)$/.test(kind) ? 0 : category === 3 && kind !== "span" ? 1 : 2));
  for (const row of run.rows) {
    cover(run, seen, row);
    for (const which of [0, 1]) count(run, sort, which, row);
  }
  run.owned = new Set([...seen.keys()].filter((category) => seen[category]));
}

function cover({ segmentStart, segmentEnd, owner, category, covered }, seen, { from, to }) {
  let total = 0;
  for (let s = from; s < to; s++) {
    covered[s] = total;
    total += segmentEnd[s] - segmentStart[s];
    seen[category[owner[s]]] = 1;
  }
}

function count({ label, bytes: size, sums }, sort, which, { first, last }) {
  const { bytes, calls } = sums[which];
  let total = bytes[first], number = calls[first];
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
function join(run) {
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
  const begins = new Float64Array(most), ends = new Float64Array(most), sums = new Float64Array(most + 1);
  let n = 0, i = a.from, j = b.from, end = -Infinity;
  while (i < a.to || j < b.to) {
    const s = j >= b.to || (i < a.to && segmentStart[i] <= segmentStart[j]) ? i++ : j++, start = segmentStart[s], stop = segmentEnd[s];
    if (start > end) {
      begins[n] = start;
      ends[n] = end = stop;
      sums[++n] = sums[n - 1] + stop - start;
    } else if (stop > end) {
      sums[n] += stop - end;
      ends[n - 1] = end = stop;
    }
  }
  return { begins: begins.subarray(0, n), ends: ends.subarray(0, n), sums };
}

function before(begins, ends, sums, from, to, time) {
  const at = lowerBound(begins, from, to, time) - 1;
  return at < from ? 0 : sums[at] + Math.min(ends[at], time) - begins[at];
}

/** Return how much of the row's time in [t0, t1) is covered by events, ns. */
export function rowBusy(run, row, t0, t1) {
  if (!row) return 0;
  const { segmentStart: s, segmentEnd: e, covered } = run;
  return before(s, e, covered, row.from, row.to, t1) - before(s, e, covered, row.from, row.to, t0);
}

/** Add to `shares` (columns x categories, column first) what part of each column's time each category fills. */
export function shareMatrix(run, row, t0, t1, columns, categories, shares) {
  const k = columns / (t1 - t0), { segmentStart, segmentEnd, owner, category } = run;
  let s = Math.max(row.from, lowerBound(segmentStart, row.from, row.to, t0) - 1);
  const stop = lowerBound(segmentStart, row.from, row.to, t1);
  for (; s < stop; s++) {
    const x0 = Math.max((segmentStart[s] - t0) * k, 0), x1 = Math.min((segmentEnd[s] - t0) * k, columns);
    if (x1 <= x0) continue;
    const c = category[owner[s]], q = x1 | 0;
    let p = x0 | 0;
    if (p === q) shares[p * categories + c] += x1 - x0;
    else {
      shares[p * categories + c] += p + 1 - x0;
      for (p++; p < q; p++) shares[p * categories + c] += 1;
      if (q < columns) shares[q * categories + c] += x1 - q;
    }
  }
  return shares;
}

/** Return the numbers of the interval [t0, t1): all from the columns the picture is painted from. */
export function numbers(run, t0, t1) {
  // Where nothing was recorded, or all at one instant, there is no time to have a share of.
  const all = run.span ? Math.max(t1 - t0, 1e-9) * run.ranks.size : NaN;
  const found = { window: run.span && t1 - t0, busy: 0, compute: 0, communication: 0, exposed: 0, sent: 0, messages: 0, payload: 0, calls: 0 };
  for (const { lanes, busy } of run.ranks.values()) {
    const compute = rowBusy(run, lanes[0], t0, t1), communication = rowBusy(run, lanes[1], t0, t1);
    const { begins, ends, sums } = busy;
    const either = before(begins, ends, sums, 0, begins.length, t1) - before(begins, ends, sums, 0, begins.length, t0);
    found.compute += compute;
    found.communication += communication;
    found.busy += either;
    found.exposed += either - compute;
    if (lanes[1]) {
      const { first, last } = lanes[1];
      const a = lowerBound(run.start, first, last, t0), b = t1 >= run.span ? last : lowerBound(run.start, first, last, t1);
      const [sends, collectives] = run.sums;
      found.sent += sends.bytes[b] - sends.bytes[a];
      found.messages += sends.calls[b] - sends.calls[a];
      found.payload += collectives.bytes[b] - collectives.bytes[a];
      found.calls += collectives.calls[b] - collectives.calls[a];
    }
  }
  let bus = 0, took = 0;
  for (let c = 0; c < run.collective_start.length; c++)
    if (run.collective_start[c] >= t0 && run.collective_start[c] < t1) {
      bus += run.collective_bus_bytes[c];
      took += run.collective_duration[c];
    }
  const share = (time) => time / all, seen = (time) => (time < 1e-3 ? 0 : time); // ns; less is rounding
  found.exposed = seen(found.exposed);
  return {
    ...found, busyShare: share(found.busy), computeShare: share(found.compute), bubble: share(seen(all - found.compute)),
    exposedShare: found.exposed / found.communication, busbw: (bus / took) * 1e9,
  };
}

/** Return how long the ranks together were in each category in [t0, t1), ns. */
export function categoryTimes(run, t0, t1) {
  const shares = new Float64Array(run.categories.length);
  for (const row of run.rows) shareMatrix(run, row, t0, t1, 1, shares.length, shares);
  return shares.map((share) => share * (t1 - t0));
}

/** Return the event painted at this time in the row, or the nearest within `reach` ns, else -1. */
export function hit(run, row, time, reach = 0) {
  const at = lowerBound(run.segmentStart, row.from, row.to, time + 1e-9) - 1;
  let best = -1, distance = reach;
  for (const s of [at, at + 1])
    if (s >= row.from && s < row.to) {
      const away = Math.max(run.segmentStart[s] - time, time - run.segmentEnd[s], 0);
      if (away === 0 && time < run.segmentEnd[s]) return run.owner[s];
      if (away <= distance) [best, distance] = [run.owner[s], away];
    }
  return best;
}

/** Return the last begin or end of any event at or before the time, and the first at or after it; they are whole ns. */
function edgesAt({ runs, offset }, time) {
  const found = [-Infinity, Infinity];
  runs.forEach((run, r) => {
    const shift = r ? offset : 0;
    for (const row of run.rows)
      for (const [edges, from, to] of [[run.start, row.first, row.last], [run.segmentEnd, row.from, row.to]]) {
        const before = lowerBound(edges, from, to, Math.floor(time - shift) + 1) - 1, after = lowerBound(edges, from, to, time - shift);
        if (before >= from) found[0] = Math.max(found[0], edges[before] + shift);
        if (after < to) found[1] = Math.min(found[1], edges[after] + shift);
      }
  });
  return found;
}

/** Return the begin or end of an event nearest to the time, or the time itself beyond `reach` ns. */
export function snap(shown, time, reach) {
  const [before, after] = edgesAt(shown, time), near = time - before < after - time ? before : after;
  return Math.abs(near - time) < reach ? near : time;
}

/** Return the next begin or end of an event after (direction 1) or before (-1) the time. */
export function nextEdge(shown, time, direction) {
  const edge = direction > 0 ? edgesAt(shown, Math.floor(time) + 1)[1] : edgesAt(shown, Math.ceil(time) - 1)[0];
  return Number.isFinite(edge) ? edge : time;
}

/** Return the most a rank's memory held in each of the columns of [t0, t1). */
export function memoryColumns(memory, t0, t1, columns) {
  const { time, held } = memory, most = new Float64Array(columns);
  let i = Math.max(lowerBound(time, 0, time.length, t0) - 1, 0), before = 0;
  for (let p = 0; p < columns; p++) {
    const stop = t0 + ((p + 1) * (t1 - t0)) / columns;
    most[p] = before;
    for (; i < time.length && time[i] < stop; i++) {
      most[p] = Math.max(most[p], held[i]);
      before = held[i];
    }
  }
  return most;
}

/** Return the 1-2-5 step that puts at most `most` ticks on a length. */
export function tickStep(length, most) {
  const least = length / Math.max(most, 1), power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= least * (1 - 1e-9));
}

const TIMES = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
/** Return the largest unit, as [name, size], in which a value is at least 1; the smallest where there is none. */
export const unitOf = (value, units = TIMES) => units.find(([, size]) => value >= size) ?? units.at(-1);

function scaled(value, units) {
  if (!Number.isFinite(value)) return "–";
  const [name, size] = unitOf(Math.abs(value) * 1.0005, units);
  return `${Number((value / size).toPrecision(3))} ${name}`;
}

/** Return a time in words: "12.3 ms". */
export const timeText = (ns) => scaled(ns);
/** Return a size in words: "1.5 MB". */
export const bytesText = (size) => scaled(size, [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["KB", 1e3], ["B", 1]]);
export const percentText = (share) => (Number.isFinite(share) ? `${Number((100 * share).toPrecision(3))} %` : "–");
/** Return a number of things in words: "1 event". */
export const countText = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;
