// Beside a run that ends long before the one above it: the first of its steps, as wide as there is room.

import { COMMUNICATION } from "./kinds.js";
import { LEFT, RIGHT, pixelOf, shiftOf, xOf } from "./layout.js";
import { isRing, neighboursOf } from "./neighbours.js";
import { paintMessage } from "./paint_arrows.js";
import { eachWide, writeName } from "./paint_marks.js";

const BESIDE = 96; // pixels from the end of the run, where its length stands
const NARROWEST = 420; // pixels of a step
const EDGE = 8; // pixels after it
const NAMES = 48; // and before it, for names of ranks
const BOLD = 1.5; // pixels of an arrow

/** When the first step of a row begins and ends, and how many there are, where each is a send and a receive. */
function stepOf({ labels, label, start }, { first, last }) {
  const kinds = Array.from(label.subarray(first, last), (each) => labels[each][1]);
  const isStep = (kind, k) => k % 2 || /^i?sendi?recv$/.test([kind, kinds[k + 1]].sort().reverse().join(""));
  return last - first > 4 && kinds.every(isStep) ? [start[first], start[first + 2], kinds.length / 2] : undefined;
}

/** A state in which [t0, t1) lies between two pixels. */
function zoomed(state, number, [t0, t1], left, right) {
  const pixel = (t1 - t0) / (right - left);
  const from = t0 + shiftOf(state, number) - (left - LEFT) * pixel;
  return { ...state, view: [from, from + pixel * (state.width - LEFT - RIGHT)] };
}

/** The bars of a row within [t0, t1), with their names. */
function paintBars(context, state, place, [t0, t1]) {
  const { labels, label } = state.runs[place.run];
  const [low, high] = [t0, t1].map((time) => xOf(state, time + shiftOf(state, place.run)));
  eachWide(state, place, 1, (event, x, wide, category) => {
    const [from, to] = [Math.max(x, low), Math.min(x + wide, high)];
    if (from >= to || state.hatched[category]) return;
    context.fillStyle = state.theme.colours[category];
    context.fillRect(from, place.y, to - from, place.bar);
    writeName(context, state, place, labels[label[event]], category, [from, to]);
  });
}

/** Paint it for a run whose ranks all do alike and exchange messages, where all of it is in view. */
export function paintEnlarged(context, state) {
  const number = state.runs.length - 1;
  const run = state.runs[number];
  if (!number || state.overlay || String(state.view) !== String(state.whole)) return;
  const rows = state.layout.rows.filter((place) => place.run === number);
  const { first: rank, before } = neighboursOf(run) ?? {};
  const calls = rows.find(({ row }) => row.lane === COMMUNICATION && row.rank === rank);
  const step = calls && stepOf(run, calls.row);
  const left = xOf(state, run.span + shiftOf(state, number)) + BESIDE;
  const right = state.width - RIGHT - 1;
  if (!step || right - left < NARROWEST) return;
  const [from, to, count] = step;
  const near = zoomed(state, number, [from, to], left + NAMES, right - EDGE);
  const times = pixelOf(state) / pixelOf(near);
  const [top, bottom] = [rows[0].y - 4, rows.at(-1).y + rows.at(-1).bar + 4];
  const [x0, x1] = [from, to].map((time) => xOf(state, time + shiftOf(state, number)));
  const { height, heads } = state.layout;
  const over = heads[number].y - 2;
  context.fillStyle = state.theme.paper; // the axis above is not that of the step
  context.fillRect(left, over, right + 2 - left, height - over);
  context.strokeStyle = state.theme.edge;
  const box = (x, until) => context.strokeRect(Math.round(x) + 0.5, top + 0.5, Math.round(until - x), bottom - top);
  box(x0 - 1, x1 - 1);
  box(x1 - 1, left); // from what is small to what is large
  box(left, right);
  context.fillStyle = state.theme.ink;
  context.textAlign = "left";
  const closes = before !== undefined && isRing(run, rank) ? `; rank ${before} sends to rank ${rank}: a ring` : "";
  const words = `step 1 of ${count}, ${Math.round(times)} times as wide${closes}`;
  context.fillText(words, left, heads[number].y + 8);
  for (const { row, y, bar, first } of rows) if (first) context.fillText(`rank ${row.rank}`, left + 5, y + bar / 2);
  for (const place of rows) paintBars(context, near, place, [from, to]);
  run.flow_from.forEach((source, f) => {
    if (run.start[source] >= from && run.start[source] < to) paintMessage(context, near, number, f, BOLD);
  });
}
