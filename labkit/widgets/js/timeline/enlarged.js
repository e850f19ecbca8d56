// Beside a run that ends long before the one above it: the first of its steps, as wide as there is room.

import { COMMUNICATION } from "./kinds.js";
import { LEFT, RIGHT, neighboursOf, pixelOf, shiftOf, windowOf, xOf } from "./layout.js";
import { paintMessage } from "./paint_arrows.js";
import { eachWide, writeName } from "./paint_marks.js";

const BESIDE = 96; // pixels from the end of the run, where its length stands
const NARROWEST = 420; // pixels of a step
const EDGE = 8; // pixels round it
const BOLD = 1.5; // pixels of an arrow
const LEAST = 4; // times as wide: less shows nothing new

/** When the first step of a row begins and ends, and how many there are, where each is a send and a receive. */
function stepOf(run, { first, last }) {
  const ofKind = (kinds) => {
    const found = [];
    for (let i = first; i < last; i++) if (kinds.test(run.labels[run.label[i]][1])) found.push(run.start[i]);
    return found;
  };
  const [sends, receives] = [ofKind(/^i?send$/), ofKind(/^i?recv$/)];
  const isSteps = sends.length > 2 && receives.every((time, k) => sends[k] <= time && !(time >= sends[k + 1]));
  return isSteps && sends.length === receives.length ? [sends[0], sends[1], sends.length] : undefined;
}

/** Who closes a ring: ", in which rank 7 sends to rank 0"; "" where the ranks are none. */
function closing(run) {
  const { first, before, next } = neighboursOf(run);
  let [rank, count] = [next?.get(first), 1];
  for (; rank !== undefined && rank !== first && count <= run.ranks.size; count++) rank = next.get(rank);
  return count === run.ranks.size ? `; rank ${before} sends to rank ${first}: the ring is closed` : "";
}

/** A state in which [t0, t1) lies between two pixels. */
function zoomed(state, number, [t0, t1], left, right) {
  const pixel = (t1 - t0) / (right - left);
  const from = t0 + shiftOf(state, number) - (left - LEFT) * pixel;
  return { ...state, view: [from, from + pixel * (state.width - LEFT - RIGHT)] };
}

/** A frame of ground with a thin edge. */
function frame(context, { theme }, x, y, wide, high, isFilled) {
  context.fillStyle = theme.paper;
  if (isFilled) context.fillRect(x, y, wide, high);
  context.strokeStyle = theme.edge;
  context.strokeRect(Math.round(x) + 0.5, Math.round(y) + 0.5, Math.round(wide), Math.round(high));
}

/** The bars of a row within [t0, t1), with their names. */
function paintBars(context, state, place, [t0, t1]) {
  const { labels, label } = state.runs[place.run];
  const [low, high] = [t0, t1].map((time) => xOf(state, time + shiftOf(state, place.run)));
  context.textAlign = "left";
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
  if (!number || state.overlay || !(run.each > 1) || String(state.view) !== String(state.whole)) return;
  const rows = state.layout.rows.filter((place) => place.run === number);
  const calls = rows.find(({ row, first }) => row.lane === COMMUNICATION && !first);
  const step = calls && stepOf(run, calls.row);
  const left = xOf(state, run.span + shiftOf(state, number)) + BESIDE;
  const right = state.width - RIGHT - 1;
  if (!step || right - left < NARROWEST) return;
  const [from, to, count] = step;
  const near = zoomed(state, number, [from, to], left + EDGE, right - EDGE);
  const times = pixelOf(state) / pixelOf(near);
  if (times < LEAST) return;
  const [top, bottom] = [rows[0].y - 4, rows.at(-1).y + rows.at(-1).bar + 4];
  const [x0, x1] = [from, to].map((time) => xOf(state, time + shiftOf(state, number)));
  frame(context, state, x0 - 1, top, x1 - x0, bottom - top, false);
  frame(context, state, left, top, right - left, bottom - top, true);
  context.fillStyle = state.theme.ink;
  context.textAlign = "left";
  const words = `step 1 of ${count}, ${Math.round(times)} times as wide${closing(run)}`;
  context.fillText(words, left, state.layout.heads[number].y + 8);
  for (const place of rows) paintBars(context, near, place, [from, to]);
  const [t0, t1] = windowOf(state, number);
  for (let f = 0; f < run.flow_from.length; f++) {
    const begin = run.start[run.flow_from[f]];
    if (begin >= from && begin < to && begin >= t0 && begin < t1) paintMessage(context, near, number, f, BOLD);
  }
}
