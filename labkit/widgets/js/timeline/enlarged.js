// Beside a run that ends long before the one above it: the first of its steps, as wide as there is room.

import { COMMUNICATION, COMPUTE, labelOf } from "./kinds.js";
import { LEFT, NAMED, RIGHT, isZoomed, pixelOf, shiftOf, xIn } from "./layout.js";
import { paintMessage } from "./paint_arrows.js";
import { widthOf, writeBold, writeName } from "./paint_marks.js";
import { tickStep, timeText, unitOf } from "./words.js";

const BESIDE = 100; // pixels from the end of the run, where its length stands
const NARROWEST = 420; // pixels of it, for the words over it
const NAMES = 112; // pixels of the names of its rows
const EDGE = 26; // pixels after it, for the unit of its axis
const HEAD = 22; // pixels over its rows
const AXIS = 22; // pixels under them
const APART = 10; // pixels from one rank to the next
const SHOWN = 2; // ranks: the others do the same
const BOLD = 2; // pixels of an arrow and of a frame
const TICK = 70; // pixels between two times of it, at least

/** Whether a row is one of calls. */
const isCall = ({ row }) => row.lane === COMMUNICATION;

/** [begin, end, how many] of a row's first step, where each is a send and a receive at once. */
function stepOf({ labels, label, start, end }, { first, last }) {
  const kinds = Array.from(label.subarray(first, last), (each) => labels[each][1]);
  const isStep = (kind, k) => k % 2 || /^i?sendi?recv$/.test([kind, kinds[k + 1]].sort().reverse().join(""));
  const areAtOnce = last - first > 4 && start[first + 1] < end[first];
  return areAtOnce && kinds.every(isStep) ? [start[first], start[first + 2], kinds.length / 2] : undefined;
}

/** A state in which [t0, t1) lies between two pixels. */
function zoomed(state, number, [t0, t1], left, right) {
  const pixel = (t1 - t0) / (right - left);
  const from = t0 + shiftOf(state, number) - (left - LEFT) * pixel;
  return { ...state, view: [from, from + pixel * (state.width - LEFT - RIGHT)] };
}

/**
 * { number, run, rank, rows, from, to, count, left, right }: which step of which run stands between which pixels;
 * where its ranks all do alike and exchange messages, and all of it is in view. Else undefined.
 */
export function enlargedOf(state) {
  const number = state.runs.length - 1;
  const run = state.runs[number];
  if (!number || state.overlay || isZoomed(state)) return undefined;
  const rows = state.layout.rows.filter((place) => place.run === number);
  const rank = run.alike?.find((ranks) => ranks.length > 1)?.[0];
  const calls = rows.find((place) => isCall(place) && place.row.rank === rank);
  const step = run.each > 1 && calls && stepOf(run, calls.row);
  const left = xIn(state, number, run.span) + BESIDE;
  const right = state.width - RIGHT - 1;
  if (!step || right - left < NARROWEST) return undefined;
  const [from, to, count] = step;
  return { number, run, rank, rows, from, to, count, left, right };
}

/** The rows of the first ranks between two heights: of calls twice as high, for what is received over what is sent. */
function rowsOfTwo(rows, top, bottom) {
  const ranks = [...new Set(rows.map(({ row }) => row.rank))].slice(0, SHOWN);
  const tall = (bottom - top) / ranks.length;
  return ranks.flatMap((rank, k) => {
    const own = rows.filter(({ row }) => row.rank === rank);
    const high = Math.floor((tall - APART) / (own.length + 1));
    let y = top + k * tall;
    return own.map((place) => {
      const bar = isCall(place) ? 2 * high : high;
      y += bar;
      return { ...place, y: y - bar, bar };
    });
  });
}

/** The bars of a row within [t0, t1), with their names: what is received over what is sent, as long as each takes. */
function paintBars(context, state, place, [t0, t1]) {
  const { run: number, row, y, bar } = place;
  const run = state.runs[number];
  const { start, end, category } = run;
  const high = isCall(place) ? bar / 2 : bar;
  for (let event = row.first; event < row.last; event++) {
    const [from, to] = [Math.max(start[event], t0), Math.min(end[event], t1)];
    if (from >= to || state.hatched[category[event]]) continue;
    const [x, until] = [from, to].map((time) => xIn(state, number, time));
    const named = labelOf(run, event);
    const top = isCall(place) && /send/.test(named[1]) ? y + high : y;
    context.fillStyle = state.theme.colours[category[event]];
    context.fillRect(x, top, until - x, high);
    writeName(context, state, { y: top, bar: Math.max(high, NAMED) }, named, category[event], [x, until]);
  }
}

/** Times from the step's begin on, under it. */
function paintTimes(context, near, { number, from, to, right }, y) {
  const step = tickStep(TICK * pixelOf(near), 1);
  const [unit, size] = unitOf(to - from);
  context.fillStyle = near.theme.ink;
  context.textAlign = "center";
  for (let time = 0; time <= to - from; time += step) {
    const x = xIn(near, number, from + time);
    context.fillRect(Math.round(x), y, 1, 4);
    context.fillText(String(Number((time / size).toPrecision(3))), x, y + 11);
  }
  context.fillText(unit, right - EDGE / 2, y + 11);
}

/** What the steps are for: [[words, begin, end]] where the rank computes one thing after the first, another later. */
function phasesOf(run, { rank, from, count }) {
  const row = run.ranks.get(rank).lanes[COMPUTE];
  const groups = [];
  for (let i = row?.first ?? 0; i < (row?.last ?? 0); i++) {
    const name = labelOf(run, i)[0].replace(/_$/, "");
    if (groups.at(-1)?.[0] === name) groups.at(-1)[1]++;
    else groups.push([name, 1]);
    groups.at(-1)[2] = run.end[i];
  }
  const steps = groups.filter(([, times]) => times > 1);
  if (steps.length < 2 || steps.reduce((sum, [, times]) => sum + times, 0) !== count) return [];
  return steps.map(([name, times, until], k) => [`${times} steps: ${name}`, steps[k - 1]?.[2] ?? from, until]);
}

/** Brackets under the run, with what its steps are for. */
function paintPhases(context, state, step, y) {
  context.textAlign = "center";
  for (const [words, begin, end] of phasesOf(step.run, step)) {
    const [x0, x1] = [begin, end].map((time) => Math.round(xIn(state, step.number, time)));
    context.fillStyle = state.theme.ink;
    context.fillRect(x0 + 2, y, x1 - x0 - 4, BOLD);
    if (widthOf(context, state, words) < x1 - x0) context.fillText(words, (x0 + x1) / 2, y + 10);
  }
}

/** Frames round the step in the run and where it is large, and lines from one to the other. */
function paintFrames(context, { theme }, [x0, x1], { left, right }, top, bottom) {
  const frame = (x, until) => context.strokeRect(Math.round(x) + 0.5, top + 0.5, Math.round(until - x), bottom - top);
  context.strokeStyle = theme.ink;
  context.lineWidth = BOLD;
  frame(x0 - 1, x1 - 1);
  frame(left, right);
  context.lineWidth = 1;
  context.setLineDash([3, 3]);
  for (const y of [top, bottom]) {
    context.beginPath();
    context.moveTo(x1, y + 0.5);
    context.lineTo(left, y + 0.5);
    context.stroke();
  }
  context.setLineDash([]);
}

/** An arrow from each rank that is seen to the next, and on it how long its last byte is on the way. */
function paintMessages(context, state, { number, run, from, to }) {
  const { ink, near } = state.theme;
  context.textAlign = "center";
  run.flow_from.forEach((source, f) => {
    if (run.start[source] < from || run.start[source] >= to) return;
    const [ends, long, y] = paintMessage(context, state, number, f, BOLD) ?? [];
    const middle = ends && (ends[0] + ends[1]) / 2;
    if (long > 0) writeBold(context, state, [`${timeText(long)} latency`], ends, middle, y, [ink, near]);
  });
}

/** Names of ranks and lanes, and bars, of the step. */
function paintRows(context, near, { left, from, to }) {
  for (const place of near.layout.rows) {
    const { row, y, bar } = place;
    context.fillStyle = near.theme.ink;
    context.textAlign = "left";
    if (place.first) context.fillText(`rank ${row.rank}`, left + 8, y + bar / 2);
    context.textAlign = "right";
    context.fillText(isCall(place) ? "comm" : "compute", left + NAMES - 6, y + bar / 2);
    context.textAlign = "left";
    paintBars(context, near, place, [from, to]);
  }
}

/** Paint it: framed as in the run, on a ground and with an axis of its own. */
export function paintEnlarged(context, state) {
  const step = enlargedOf(state);
  if (!step) return;
  const { number, run, rows, from, to, count, left, right } = step;
  const { theme, layout } = state;
  const near = zoomed(state, number, [from, to], left + NAMES, right - EDGE);
  const [top, bottom] = [rows[0].y - 4, rows.at(-1).y + rows.at(-1).bar + 4];
  near.layout = { rows: rowsOfTwo(rows, top + HEAD, bottom - AXIS + APART - 4) };
  const ends = [from, to].map((time) => xIn(state, number, time));
  const over = layout.heads[number].y - 2;
  context.fillStyle = theme.paper; // the axis above is not that of the step
  const end = xIn(state, number, run.span) + BOLD;
  context.fillRect(end, over, right + 10 - end, layout.height - over);
  context.fillRect(LEFT, bottom, end - LEFT, layout.height - bottom);
  context.fillStyle = theme.near;
  context.fillRect(left, top, right - left, bottom - top);
  paintTimes(context, near, step, bottom - AXIS);
  paintPhases(context, state, step, bottom + 4);
  context.fillStyle = theme.ink;
  context.textAlign = "left";
  const words = `zoom × ${Math.round(pixelOf(state) / pixelOf(near))}: step 1 of ${count}`;
  context.fillText(`${words}; send below receive: both at once`, left + 8, top + HEAD / 2);
  paintRows(context, near, step);
  for (const place of rows.filter(isCall)) {
    context.fillStyle = theme.band;
    const x0 = xIn(state, number, 0);
    context.fillRect(x0, place.y, end - BOLD - x0, place.bar); // send and receive are at once in the run, too
    paintBars(context, state, place, [0, run.span]);
  }
  paintMessages(context, near, step);
  paintFrames(context, state, ends, step, top, bottom);
}
