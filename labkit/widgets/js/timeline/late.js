// For whom the headline says ranks wait: an arrow from who comes to the end of each wait, and how long, said once.

import { MOST, NEAR, comesAt, hiddenWaits } from "./hidden.js";
import { COMMUNICATION, COMPUTE } from "./kinds.js";
import { lateRanks } from "./last_ranks.js";
import { LEFT, holdsWords, pixelOf, windowOf, xIn } from "./layout.js";
import { arrow } from "./paint_arrows.js";
import { writeBold } from "./paint_marks.js";
import { lowerBound } from "./search.js";
import { rowBusy } from "./shares.js";
import { timeText } from "./words.js";

const LEAST = 3; // pixels of a wait whose end is tied to who comes
const PALE = "66"; // of the colour of a wait, between its stripes
const FRAME = 2; // pixels of a line round a wait

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

/** Times as pixels. */
const pixelsOf = (state, run, times) => times.map((time) => Math.round(xIn(state, run, time)));

/** A frame round a wait; of one that computing hides in dashes, from a line where its call is made. */
function paintWait(context, state, { run, y, bar }, wait, isHidden) {
  const [begin, end] = wait.map((time) => xIn(state, run, time));
  const [from, to] = [Math.floor(begin), Math.ceil(end)]; // all that is blocked, also of a part of a pixel
  const thick = isHidden ? 1 : FRAME;
  if (isHidden) state.marks.add("hidden");
  else context.fillRect(from, y, to - from, bar);
  context.setLineDash(isHidden ? [3, 2] : []);
  context.lineWidth = thick;
  context.strokeRect(from + thick / 2, y + thick / 2, to - from - thick, bar - thick);
  if (!isHidden) return;
  context.setLineDash([]);
  context.lineWidth = FRAME;
  context.strokeRect(from + 1, y, 0, bar);
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

const lengthOf = ([begin, end]) => end - begin;

/**
 * How long waits are, in the order of time: [waits, [words, fewer words, the time alone], whether the rank computes
 * meanwhile].
 */
function toldOf(hidden, groups) {
  const late = hidden.map((wait) => {
    const long = timeText(lengthOf(wait));
    return [[wait], [`starts ${long} late`, `${long} late`, long], true];
  });
  const waits = groups.map((group) => {
    const all = timeText(group.reduce((sum, wait) => sum + lengthOf(wait), 0));
    const words = `waits ${all}`;
    return [group, [group.length > 1 ? `waits ${group.length} times, ${all} in all` : words, words, all]];
  });
  return [...late, ...waits].sort(([[one]], [[other]]) => one[0] - other[0]);
}

/**
 * Beside a row how long it waits, over or under the waits: in words once, then in times alone; in fewer words where not
 * all have room. Where no words leave room for all, in words that differ.
 */
function tellWaits(context, state, { run, note }, told) {
  const ends = told.map(([waits]) => pixelsOf(state, run, [waits[0][0], waits.at(-1)[1]]));
  const tell = (form, colours) => {
    const isAll = form >= 0;
    const said = new Set();
    let free = LEFT;
    return told.every(([, words, isLate], k) => {
      const kind = isAll ? words[0].replaceAll(/[\d.]+/g, "") : words[0];
      const isNew = !said.has(kind);
      said.add(kind);
      const [from, to] = ends[k];
      const room = [free, isLate ? to : (ends[k + 1]?.[0] ?? state.width)];
      const text = words[isNew ? (form ?? 0) : 2];
      const end = (isNew || isAll) && writeBold(context, state, text, room, (from + to) / 2, note, colours);
      free = end || free;
      return end || !isAll;
    });
  };
  const form = [0, 1, 2].find((each) => tell(each));
  state.untold ||= form === undefined;
  tell(form, [state.theme.alarm, state.theme.paper]);
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
    const { y: top, bar: high } = workOf(late[0]) ?? late[0];
    context.textAlign = "center";
    const told = [];
    for (const place of calls.filter(({ row }) => !ranks.includes(row.rank))) {
      const waits = waitsOf(state, number, place.row, comers);
      const work = workOf(place);
      const least = LEAST * pixelOf(state);
      const hidden = work ? hiddenWaits(run, place.row, comers, windowOf(state, number), least) : [];
      const groups = work ? together(run, work, waits) : waits.map((wait) => [wait]);
      context.strokeStyle = state.theme.alarm;
      context.fillStyle = state.theme.alarm + PALE;
      for (const wait of hidden) paintWait(context, state, place, wait, true);
      for (const wait of waits) paintWait(context, state, place, wait);
      context.setLineDash([]);
      const [from, to] = place.y < top ? [top, place.y + place.bar] : [top + high, place.y];
      context.fillStyle = state.theme.alarm;
      for (const [begin, end] of [...hidden, ...waits]) {
        if (!comesAt(run, comers, end, NEAR * (end - begin))) continue; // it waits on, and computes no more
        const x = pixelsOf(state, number, [end])[0] - FRAME / 2;
        arrow(context, x, from, x, to, FRAME); // from who ends it
        state.marks.add("late");
      }
      if (place.note) told.push([place, toldOf(hidden, groups)]);
    }
    for (const each of told) tellWaits(context, state, ...each); // over all arrows
  });
}
