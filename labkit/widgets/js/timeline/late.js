// The ranks that come last, as the headline names them: their name is marked, and a line from them to the ends of the
// others' waits, with their lengths.

import { BLOCKED, COMMUNICATION, COMPUTE } from "./kinds.js";
import { LEFT, RIGHT, holdsNames, holdsWords, pixelOf, shiftOf, windowOf, xOf } from "./layout.js";
import { widthOf } from "./paint_marks.js";
import { lowerBound } from "./search.js";
import { rowBusy } from "./shares.js";
import { timeText } from "./words.js";

const LAST = /^Ranks? ([\d, and]+) comes? last/;
const LEAST = 3; // pixels of a wait whose end is tied to who comes
const MOST = 200; // waits of a row
const NEAR = 0.05; // of a wait, by which who is waited for may come beside its end

/** The ranks that a run's headline says come last. */
export const lateRanks = ({ title = "" }) => (LAST.exec(title)?.[1].match(/\d+/g) ?? []).map(Number);

/** Whether one of the late ranks begins to move bytes at that time. */
function comesAt({ segmentStart, segmentCategory }, rows, time, near) {
  return rows.some(({ from, to }) => {
    const at = lowerBound(segmentStart, from, to, time - near);
    return at < to && segmentStart[at] <= time + near && segmentCategory[at] !== BLOCKED;
  });
}

/** [begin, end] of the waits in view of one row that a late rank ends. */
function waitsOf(state, number, row, late) {
  const run = state.runs[number];
  const [t0, t1] = windowOf(state, number);
  const { begins, ends } = run.ranks.get(row.rank).blocked;
  const found = [];
  for (let k = lowerBound(ends, 0, ends.length, t0); k < ends.length && ends[k] <= t1 && found.length < MOST; k++) {
    const long = ends[k] - begins[k];
    if (long < LEAST * pixelOf(state) || !comesAt(run, late, ends[k], NEAR * long)) continue;
    found.push([begins[k], ends[k]]);
  }
  return found;
}

/** Waits between which the rank computes nothing, together. */
function together(run, { row }, waits) {
  const groups = [];
  for (const wait of waits) {
    const group = groups.at(-1);
    if (group && !rowBusy(run, row, group[0][0], wait[1])) group.push(wait);
    else groups.push([wait]);
  }
  return groups;
}

/** "3 × 30.9 µs blocked", or how long all are where they are not alike. */
function wordsOf(group) {
  const times = group.map(([begin, end]) => timeText(end - begin));
  if (new Set(times).size > 1) return `${timeText(group.reduce((sum, [a, b]) => sum + b - a, 0))} blocked`;
  return `${times.length > 1 ? `${times.length} × ` : ""}${times[0]} blocked`;
}

/** A bracket over each of the waits, and how long they are above it, where the rank computes nothing. */
function tellWaits(context, state, above, group) {
  const [begin, end] = [group[0][0], group.at(-1)[1]];
  const words = wordsOf(group);
  const half = widthOf(context, state, words) / 2;
  const shift = shiftOf(state, above.run);
  const x = (xOf(state, begin + shift) + xOf(state, end + shift)) / 2;
  if (x - half < LEFT || x + half > state.width - RIGHT) return;
  const room = (half + 3) * pixelOf(state);
  if (rowBusy(state.runs[above.run], above.row, (begin + end) / 2 - room, (begin + end) / 2 + room)) return;
  context.fillText(words, x, above.y + above.bar / 2 - 1.5);
  const foot = above.y + above.bar;
  context.strokeStyle = state.theme.ink;
  context.beginPath();
  for (const wait of group) {
    const [from, to] = wait.map((time) => Math.round(xOf(state, time + shift)) + 0.5);
    context.moveTo(from, foot);
    context.lineTo(from, foot - 2.5);
    context.lineTo(to, foot - 2.5);
    context.lineTo(to, foot);
  }
  context.stroke();
}

/** Draw a line from where a late rank comes to each wait that ends then. */
export function paintLate(context, state) {
  state.runs.forEach((run, number) => {
    const ranks = new Set(lateRanks(run));
    const rows = state.layout.rows.filter((place) => place.run === number && !place.row.of);
    const calls = rows.filter(({ row, bar }) => row.lane === COMMUNICATION && holdsWords(bar));
    const late = calls.filter(({ row }) => ranks.has(row.rank));
    if (!late.length) return;
    const heights = new Map(); // by time, of all rows that it ties
    context.fillStyle = state.theme.ink;
    context.textAlign = "center";
    for (const place of calls.filter(({ row }) => !ranks.has(row.rank))) {
      const above = rows.find(({ row }) => row.rank === place.row.rank && row.lane === COMPUTE);
      const comers = late.map(({ row }) => row);
      const waits = waitsOf(state, number, place.row, comers);
      for (const [, end] of waits) heights.set(end, [...(heights.get(end) ?? []), place.y, place.y + place.bar]);
      if (!above || !holdsNames(above.bar)) continue;
      for (const group of together(run, above, waits)) tellWaits(context, state, above, group);
    }
    for (const [time, ends] of heights) tie(context, state, xOf(state, time + shiftOf(state, number)), ends, late);
  });
}

/** A line from the late ranks' rows over those that wait for them. */
function tie(context, state, x, ends, late) {
  const own = late.flatMap(({ y, bar }) => [y, y + bar]);
  const top = Math.min(...ends, ...own);
  const at = Math.round(x);
  context.setLineDash([3, 2]);
  context.strokeStyle = state.theme.ink;
  context.beginPath();
  context.moveTo(at + 0.5, top);
  context.lineTo(at + 0.5, Math.max(...ends, ...own));
  context.stroke();
  context.setLineDash([]);
  state.marks.add("late");
}
