// A run with what was recorded since.

import { complete } from "./complete.js";
import { lowerBound } from "./search.js";

const COPIED = ["start", "duration", "bytes", "label"];
const NONE = ["flow_from", "flow_to", "cut_event", "cut_start", "cut_end", "blocked_start", "blocked_end"];
const LANES = 4;

/** All labels of two runs, and which of them each label of the second is. */
function joinLabels(run, more) {
  const labels = [...run.labels];
  const known = new Map(labels.map((label, i) => [label.join("\n"), i]));
  const code = Uint32Array.from(more.labels, (label) => {
    const key = label.join("\n");
    if (!known.has(key)) known.set(key, labels.push(label) - 1);
    return known.get(key);
  });
  return { labels, code };
}

/** The rows of two runs side by side, in order; a row that one of them lacks is empty. */
function joinRows(runs) {
  const places = new Map();
  runs.forEach(({ rows }, which) => {
    for (const row of rows) {
      const key = row.rank * LANES + ((row.lane + 1) % LANES); // names stand above
      const empty = () => ({ rank: row.rank, lane: row.lane, first: 0, last: 0 });
      if (!places.has(key)) places.set(key, [empty(), empty()]);
      places.get(key)[which] = row;
    }
  });
  return [...places].sort(([a], [b]) => a - b).map(([, pair]) => pair);
}

const emptyColumns = (n) => ({
  start: new Float64Array(n),
  duration: new Float64Array(n),
  bytes: new Float64Array(n),
  label: new Uint32Array(n),
  ...Object.fromEntries(NONE.map((name) => [name, new Uint32Array()])),
  blocked: [],
});

/** Write events of a run into the merged one; return where the next are written. */
function copy(merged, of, first, last, at) {
  for (const name of COPIED) merged[name].set(of[name].subarray(first, last), at);
  return at + last - first;
}

/** Write two rows as one, by begin, the longer of those that begin together first; return where it ends. */
function mergeRow(merged, run, later, a, b, begin) {
  let i = b.last > b.first ? lowerBound(run.start, a.first, a.last, later.start[b.first]) : a.last;
  let j = b.first;
  let at = copy(merged, run, a.first, i, begin); // what began before anything new, in one go
  while (i < a.last && j < b.last) {
    const isTie = run.start[i] === later.start[j] && run.end[i] >= later.end[j];
    if (run.start[i] < later.start[j] || isTie) {
      at = copy(merged, run, i, i + 1, at);
      i++;
    } else {
      at = copy(merged, later, j, j + 1, at);
      j++;
    }
  }
  at = copy(merged, run, i, a.last, at);
  return copy(merged, later, j, b.last, at);
}

/** A run with the events of another added, which were recorded later; messages are matched when it has ended. */
export function merge(run, more) {
  const { labels, code } = joinLabels(run, more);
  const later = { ...more, label: more.label.map((label) => code[label]) };
  const columns = emptyColumns(run.start.length + more.start.length);
  const merged = { ...run, labels, says: more.says, hides: undefined, span: Math.max(run.span, more.span), ...columns };
  let at = 0;
  const counts = joinRows([run, later]).map(([a, b]) => {
    const begin = at;
    at = mergeRow(merged, run, later, a, b, begin);
    return [a.rank, a.lane, at - begin];
  });
  return complete(merged, counts);
}
