// Beside a run that ends long before the one above it: the first of its steps, as wide as there is room. Its rows go on
// where those of the run lie.

import { exchanges, passing, stepsText } from "./exchanges.js";
import { COMPUTE, labelOf } from "./kinds.js";
import { LEFT, isZoomed, pixelOf, shiftOf, xIn } from "./layout.js";
import { paintMessage } from "./paint_arrows.js";
import { eachWide, widthOf, writeName } from "./paint_marks.js";
import { timeText } from "./words.js";

const BESIDE = 84; // pixels from the end of the run, where its length stands
const SHARE = 0.86; // of the room beside the run
const FULL = 300; // pixels of it that has words under it, if there is room
const NARROWEST = 260; // pixels of it, for its words
const EDGE = 4; // pixels from its rows to its frame
const PAD = 5; // pixels beside a bracket's words

/** A state in which [t0, t1) lies between two pixels. */
function zoomed(state, number, [t0, t1], left, right) {
  const pixel = (t1 - t0) / (right - left);
  const from = t0 + shiftOf(state, number) - (left - LEFT) * pixel;
  return { ...state, view: [from, from + pixel * (state.right - LEFT)] };
}

/**
 * { number, run, rank, steps, from, to, left, right }: the first step of which run stands between which pixels; where
 * its ranks all do alike and exchange messages, and all of it is in view. Else undefined.
 */
export function enlargedOf(state) {
  const number = state.runs.length - 1;
  const run = state.runs[number];
  const { rank, steps } = exchanges(run) ?? {};
  if (!number || state.overlay || isZoomed(state) || !steps) return undefined;
  const left = xIn(state, number, run.span) + BESIDE;
  const room = state.right - 1 - left;
  const right = left + Math.round(Math.max(SHARE * room, Math.min(room, FULL))); // not where the run above ends
  if (right - left < NARROWEST) return undefined;
  const [from, to] = steps.map(([event]) => run.start[event]);
  return { number, run, rank, steps, from, to, left, right };
}

/** The bars of a track within the step, with their names. */
function paintBars(context, near, place, { run, left, right }) {
  const { y, bar } = place;
  context.fillStyle = near.theme.band;
  context.fillRect(left, y, right - left, bar);
  eachWide(near, place, 0, (event, begin, wide, category) => {
    const [x, until] = [Math.max(begin, left), Math.min(begin + wide, right)];
    if (x >= until || near.hatched[category]) return;
    context.fillStyle = near.theme.colours[category];
    context.fillRect(x, y, until - x, bar);
    writeName(context, near, place, labelOf(run, event), category, [x, until]);
  });
}

/** Brackets under some rows: [[words, begin, end]], where there is room for the words of all. */
function paintBrackets(context, state, number, y, brackets) {
  context.textAlign = "center";
  context.fillStyle = state.theme.ink;
  const placed = brackets.map(([words, ...ends]) => [
    words,
    ...ends.map((time) => Math.round(xIn(state, number, time))),
  ]);
  if (placed.some(([words, x0, x1]) => widthOf(context, state, words) + PAD > x1 - x0)) return;
  for (const [words, x0, x1] of placed) {
    context.fillRect(x0 + 1, y, x1 - x0 - 2, 1);
    for (const x of [x0 + 1, x1 - 2]) context.fillRect(x, y - 3, 1, 3);
    context.fillText(words, (x0 + x1) / 2, y + 9);
  }
}

/** What the rank computes from one time to another. */
function computedIn(run, rank, from, to) {
  const { first, last } = run.ranks.get(rank).lanes[COMPUTE] ?? {};
  const found = [];
  for (let i = first; i < last; i++) if (run.start[i] >= from && run.start[i] < to) found.push(i);
  return found;
}

const nameOf = (run, event) => labelOf(run, event)[0].replace(/_$/, "");

/** What a step's time is: its bytes leave, the last of them is on its way, and what came is used. */
function partsOf({ run, rank, steps, from, to }) {
  const [sent, came] = passing(run, steps[0]);
  const parts = [
    ["send", from, sent],
    ["latency", sent, came],
  ];
  for (const i of computedIn(run, rank, from, to)) parts.push([nameOf(run, i), run.start[i], run.end[i]]);
  const some = parts.filter(([, begin, end]) => end > begin);
  return some.map(([words, begin, end]) => [`${words}: ${timeText(end - begin)}`, begin, end]);
}

/** Which steps compute what: [["7 steps with add", begin, end], ["7 without", ...]]; where all do alike none. */
function phasesOf({ run, rank, steps }) {
  const groups = [];
  steps.forEach(([event], k) => {
    const end = steps[k + 1] ? run.start[steps[k + 1][0]] : run.span;
    const name = [...new Set(computedIn(run, rank, run.start[event], end).map((i) => nameOf(run, i)))].join(", ");
    if (groups.at(-1)?.name !== name) groups.push({ name, count: 0, begin: run.start[event] });
    Object.assign(groups.at(-1), { count: groups.at(-1).count + 1, end });
  });
  if (groups.length !== 2) return [];
  return groups.map(({ name, count, begin, end }) => [
    `${count} steps ${name ? `with ${name}` : "without"}`,
    begin,
    end,
  ]);
}

/** Frames round the step in the run and where it is large, and lines from one to the other. */
function paintFrames(context, { theme }, [x0, x1], { left, right }, top, bottom) {
  const frame = (x, until) => context.strokeRect(Math.round(x) + 0.5, top + 0.5, Math.round(until - x), bottom - top);
  context.strokeStyle = theme.ink;
  frame(x0 - 1, x1 - 1);
  frame(left, right);
  context.setLineDash([3, 3]);
  for (const y of [top, bottom]) {
    context.beginPath();
    context.moveTo(x1, y + 0.5);
    context.lineTo(left, y + 0.5);
    context.stroke();
  }
  context.setLineDash([]);
}

/** Paint it: framed as in the run. */
export function paintEnlarged(context, state) {
  const step = enlargedOf(state);
  if (!step) return;
  const { number, run, from, to, left, right } = step;
  const { theme, layout } = state;
  const near = zoomed(state, number, [from, to], left, right);
  const bars = layout.bars.filter((place) => place.run === number);
  const [top, bottom] = [bars[0].y - EDGE, bars.at(-1).y + bars.at(-1).bar + EDGE];
  const over = layout.heads[number].y;
  const end = xIn(state, number, run.span) + 2;
  context.fillStyle = theme.paper; // the axis above is not that of the step
  context.fillRect(end, over, right + 10 - end, layout.height - over);
  context.fillRect(LEFT, bottom, end - LEFT, layout.height - bottom);
  context.textAlign = "left";
  for (const place of bars) paintBars(context, near, place, step);
  run.flow_from.forEach((source, f) => {
    if (run.start[source] >= from && run.start[source] < to) paintMessage(context, near, number, f, 1);
  });
  paintBrackets(context, near, number, bottom + 5, partsOf(step));
  paintBrackets(context, state, number, bottom + 5, phasesOf(step));
  const ends = [from, to].map((time) => xIn(state, number, time));
  paintFrames(context, state, ends, step, top, bottom);
  context.fillStyle = theme.ink;
  context.textAlign = "left";
  const times = Math.round(pixelOf(state) / pixelOf(near));
  context.fillText(`first of ${stepsText(run)}, ${times} times as wide`, left, over + 10, right - left);
}
