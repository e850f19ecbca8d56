// The ranks that come last: a line from them to the ends of the others' waits, with their lengths.

import { MOST, NEAR, comesAt, hiddenWaits } from "./hidden.js";
import { COMMUNICATION, COMPUTE } from "./kinds.js";
import { lateRanks } from "./last_ranks.js";
import { LEFT, RIGHT, holdsWords, pixelOf, ranksText, shiftOf, windowOf, xOf } from "./layout.js";
import { widthOf } from "./paint_marks.js";
import { lowerBound } from "./search.js";
import { rowBusy } from "./shares.js";
import { timeText } from "./words.js";

const LEAST = 3; // pixels of a wait whose end is tied to who comes
const HIDDEN = ["hidden wait", "hidden"];
const UNDER = 4; // pixels from a row to a bracket below it
const FONT = "12px system-ui, sans-serif";
const BOLD_FONT = "700 12px system-ui, sans-serif";
const BOLD = 4; // pixels by which half of such words is wider, at most

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

/** A frame in dashes from where a call begins to where a late rank comes for it, and what it is where that has room. */
function paintHidden(context, state, { run, y, bar, told }, wait) {
  const [from, to] = wait.map((time) => Math.round(xOf(state, time + shiftOf(state, run))));
  state.marks.add("hidden");
  context.strokeStyle = state.theme.ink;
  context.fillStyle = state.theme.ink;
  context.setLineDash([3, 2]);
  context.strokeRect(from + 0.5, y + 0.5, to - from - 1, bar - 1);
  context.setLineDash([]);
  const left = Math.max(from, LEFT);
  const fits = (words) => widthOf(context, state, words) + 2 < to - left;
  const [name, long] = [HIDDEN.find(fits), timeText(wait[1] - wait[0])];
  if (name) context.fillText(name, (left + to) / 2, y + bar / 2);
  if (name && told && fits(long)) context.fillText(long, (left + to) / 2, y + bar + 10);
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

/** "92.8 µs in 3 waits". */
function wordsOf(group) {
  const all = timeText(group.reduce((sum, [begin, end]) => sum + end - begin, 0));
  return group.length > 1 ? `${all} in ${group.length} waits` : all;
}

/** A frame round each of the waits, and below, under a bracket, how long they are, if after `least`. */
function tellWaits(context, state, { run, y, bar }, group, least) {
  const words = wordsOf(group);
  const ends = group.map((wait) => wait.map((time) => Math.round(xOf(state, time + shiftOf(state, run))) + 0.5));
  const wide = widthOf(context, state, words) + 2 * BOLD;
  const middle = (ends[0][0] + ends.at(-1)[1]) / 2;
  const [left, right] = [middle - wide / 2, middle + wide / 2];
  if (left < Math.max(LEFT, least) || right > state.width - RIGHT) return ends.at(-1)[1];
  context.strokeStyle = state.theme.ink;
  for (const [from, to] of ends) context.strokeRect(from, y + 0.5, to - from, bar - 1);
  context.fillStyle = state.theme.ink;
  context.fillRect(ends[0][0], y + bar + 2, ends.at(-1)[1] - ends[0][0], 1);
  context.fillStyle = state.theme.paper; // no line goes through words
  context.fillRect(left, y + bar + 4, wide, 12);
  context.fillStyle = state.theme.ink;
  context.font = BOLD_FONT;
  context.fillText(words, middle, y + bar + 10);
  context.font = FONT;
  return Math.max(right, ends.at(-1)[1]);
}

/** Draw a line from where a late rank comes to each wait that ends then. */
export function paintLate(context, state) {
  state.runs.forEach((run, number) => {
    const ranks = lateRanks(run);
    const rows = state.layout.rows.filter((place) => place.run === number && !place.row.of);
    const calls = rows.filter(({ row, bar }) => row.lane === COMMUNICATION && holdsWords(bar));
    const late = calls.filter(({ row }) => ranks.includes(row.rank));
    if (!late.length) return;
    const heights = new Map(); // by time, of all rows that it ties
    const told = []; // [row, waits that are one group]
    context.textAlign = "center";
    for (const place of calls.filter(({ row }) => !ranks.includes(row.rank))) {
      const work = rows.find(({ row }) => row.rank === place.row.rank && row.lane === COMPUTE);
      const comers = late.map(({ row }) => row);
      const waits = waitsOf(state, number, place.row, comers);
      for (const [, end] of waits) heights.set(end, [...(heights.get(end) ?? []), place.y, place.y + place.bar]);
      if (!work || !place.told) continue;
      told.push([place, together(run, work, waits)]);
      const hidden = hiddenWaits(run, place.row, comers, windowOf(state, number), LEAST * pixelOf(state));
      for (const wait of hidden) paintHidden(context, state, place, wait);
    }
    for (const [time, ends] of heights) tie(context, state, xOf(state, time + shiftOf(state, number)), ends, late);
    for (const [place, groups] of told) {
      let end = LEFT;
      for (const group of groups) end = tellWaits(context, state, place, group, end);
    }
    const [[, groups] = [0, []]] = told;
    let free = LEFT;
    for (const group of groups) {
      const ends = group.map(([, end]) => xOf(state, end + shiftOf(state, number)));
      free = tellComers(context, state, ends, late.at(-1), comersOf(ranks, group.length), free);
    }
  });
}

/** Who comes, in as many words as there may be room for: the first says what that means. */
function comersOf(ranks, count) {
  const who = ranks.length > 1 ? `ranks ${ranksText(ranks)} come` : `rank ${ranks[0]} comes`;
  return [`${who}: ${count > 1 ? `${count} waits end` : "wait ends"}`, who];
}

/** Say under the last row of those who come that they do, under a bracket; where the words end, else `least`. */
function tellComers(context, state, ends, { y, bar, told }, words, least) {
  if (!told) return least;
  const [from, to] = [Math.round(ends[0]), Math.round(ends.at(-1))];
  context.fillStyle = state.theme.ink;
  context.fillRect(from, y + bar + UNDER, to - from + 1, 1);
  for (const x of ends) context.fillRect(Math.round(x), y + bar, 1, UNDER);
  const long = words.find((each) => {
    const half = widthOf(context, state, each) / 2;
    const [left, right] = [(from + to) / 2 - half, (from + to) / 2 + half];
    return left > least + 2 * BOLD && right < state.width - RIGHT;
  });
  if (!long) return least;
  context.textAlign = "center";
  context.fillText(long, (from + to) / 2, y + bar + UNDER + 8);
  return (from + to) / 2 + widthOf(context, state, long) / 2;
}

/** A line from the late ranks' rows over those that wait for them. */
function tie(context, { theme }, x, ends, late) {
  const all = [...ends, ...late.flatMap(({ y, bar }) => [y, y + bar])];
  const at = Math.round(x) + 0.5;
  context.setLineDash([3, 2]);
  context.strokeStyle = theme.ink;
  context.beginPath();
  context.moveTo(at, Math.min(...all));
  context.lineTo(at, Math.max(...all));
  context.stroke();
  context.setLineDash([]);
}
