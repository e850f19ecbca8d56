// The ranks that come last: what they compute when others are done, and how long these wait for them, in full once.

import { MOST, NEAR, comesAt, hiddenWaits } from "./hidden.js";
import { COMMUNICATION, COMPUTE, OPTIMIZER } from "./kinds.js";
import { lateRanks } from "./last_ranks.js";
import { LEFT, holdsWords, pixelOf, ranksText, shiftOf, windowOf, xOf } from "./layout.js";
import { arrow } from "./paint_arrows.js";
import { widthOf, writeBold } from "./paint_marks.js";
import { lowerBound } from "./search.js";
import { rowBusy } from "./shares.js";
import { stepEdges } from "./steps.js";
import { timeText } from "./words.js";

const LEAST = 3; // pixels of a wait whose end is tied to who comes
const PALE = "66"; // of the colour of a wait, between its stripes
const FRAME = 2; // pixels of a line round what a late rank computes later

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

/** A frame in dashes from where a call begins to where a late rank comes for it, and how long that is, in words. */
function paintHidden(context, state, { run, y, bar }, wait) {
  const [from, to] = wait.map((time) => Math.round(xOf(state, time + shiftOf(state, run))));
  state.marks.add("hidden");
  context.strokeStyle = state.theme.quiet;
  context.fillStyle = state.theme.ink;
  context.setLineDash([3, 2]);
  context.strokeRect(from + 0.5, y + 0.5, to - from - 1, bar - 1);
  context.setLineDash([]);
  const left = Math.max(from, LEFT);
  const words = `${timeText(wait[1] - wait[0])} late`;
  if (widthOf(context, state, words) + 2 < to - left) context.fillText(words, (left + to) / 2, y + bar / 2);
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

/** When a row computes nothing around a time: [end of what is before, begin of what is after]. */
function gapAt({ segmentStart, segmentEnd }, { from, to }, time) {
  const next = lowerBound(segmentStart, from, to, time);
  return [next > from ? segmentEnd[next - 1] : -Infinity, next < to ? segmentStart[next] : Infinity];
}

/** A frame round each wait; how many and long: above, where the rank computes nothing, or in the first. */
function tellWaits(context, state, place, work, group, whom) {
  const { run: number, y, bar } = place;
  const { runs, theme } = state;
  const at = (time) => xOf(state, time + shiftOf(state, number));
  const ends = group.map((wait) => wait.map((time) => Math.round(at(time))));
  context.lineWidth = FRAME;
  context.strokeStyle = context.fillStyle = theme.alarm;
  const where = work ?? place;
  context.fillStyle = theme.alarm + PALE;
  for (const [from, to] of ends) {
    context.fillRect(from, y, to - from, bar);
    context.strokeRect(from + 1, y + 1, to - from - 2, bar - 2);
  }
  context.lineWidth = 1;
  const all = timeText(group.reduce((sum, [begin, end]) => sum + end - begin, 0));
  const room = work ? gapAt(runs[number], work.row, group[0][0] + 1).map(at) : ends[0];
  const told = `${group.length > 1 ? `${group.length} ` : ""}waits for ${whom}: ${all}`;
  const middle = (ends[0][0] + ends.at(-1)[1]) / 2;
  writeBold(context, state, [told, all], room, middle, where.y + where.bar / 2, [theme.alarm, theme.band]);
}

/** When a row has computed what a step is for, but for its optimizer. */
function computedBy({ segmentStart, segmentEnd, segmentCategory }, { from, to }, end) {
  let at = lowerBound(segmentStart, from, to, end) - 1;
  while (at >= from && segmentCategory[at] === OPTIMIZER) at--;
  return at >= from ? segmentEnd[at] : 0;
}

/** A frame round what a late rank computes in each step when another is done, with its length. */
function tellLater(context, state, { run: number, row, y, bar }, other) {
  const { runs, theme } = state;
  const run = runs[number];
  for (const end of (stepEdges(run) ?? []).slice(1)) {
    const [from, to] = [other, row].map((each) => computedBy(run, each, end));
    const ends = [from, to].map((time) => Math.round(xOf(state, time + shiftOf(state, number))));
    if (ends[1] - ends[0] <= 2 * FRAME || ends[1] < LEFT) continue;
    context.lineWidth = FRAME;
    context.strokeStyle = theme.alarm;
    context.strokeRect(ends[0] + 1, y + 1, ends[1] - ends[0] - 2, bar - 2);
    context.lineWidth = 1;
    const long = timeText(to - from);
    const category = run.segmentCategory[lowerBound(run.segmentEnd, row.from, row.to, to)];
    const words = [`done ${long} later`, `+${long}`];
    const colours = [theme.onBar[category], theme.colours[category]];
    writeBold(context, state, words, [ends[0] + FRAME, ends[1] - FRAME], (ends[0] + ends[1]) / 2, y + bar / 2, colours);
  }
}

/** Tell of each run whose headline names who comes last. */
export function paintLate(context, state) {
  state.runs.forEach((run, number) => {
    const ranks = lateRanks(run);
    const rows = state.layout.rows.filter((place) => place.run === number && !place.row.of && holdsWords(place.bar));
    const calls = rows.filter(({ row }) => row.lane === COMMUNICATION);
    const workOf = ({ row }) => rows.find((place) => place.row.rank === row.rank && place.row.lane === COMPUTE);
    const late = calls.filter(({ row }) => ranks.includes(row.rank));
    if (!late.length) return;
    const comers = late.map(({ row }) => row);
    const whom = `rank${ranks.length > 1 ? "s" : ""} ${ranksText(ranks)}`;
    const { y: top, bar: high } = workOf(late[0]) ?? late[0];
    const told = [];
    context.textAlign = "center";
    for (const place of calls.filter(({ row }) => !ranks.includes(row.rank))) {
      const waits = waitsOf(state, number, place.row, comers);
      const work = workOf(place);
      const groups = work ? together(run, work, waits) : waits.map((wait) => [wait]);
      context.strokeStyle = context.fillStyle = state.theme.alarm;
      const head = place.y < top ? top : top + high;
      for (const [, end] of groups.flat()) {
        const x = Math.round(xOf(state, end + shiftOf(state, number))) - FRAME / 2;
        arrow(context, x, place.y, x, head, FRAME); // to who ends it
      }
      told.push([place, work, groups]);
      if (!work) continue;
      const least = LEAST * pixelOf(state);
      const hidden = hiddenWaits(run, place.row, comers, windowOf(state, number), least);
      for (const wait of hidden) paintHidden(context, state, place, wait);
    }
    for (const [place, work, groups] of told) {
      for (const group of groups) tellWaits(context, state, place, work, group, whom);
    }
    const other = told[0]?.[1];
    for (const work of late.map(workOf)) if (work && other) tellLater(context, state, work, other.row);
  });
}
