// Beside a run that ends long before the one above it: the first of its steps, as wide as there is room.

import { COMMUNICATION, COMPUTE } from "./kinds.js";
import { LEFT, NAMED, RIGHT, pixelOf, shiftOf, xOf } from "./layout.js";
import { paintMessage } from "./paint_arrows.js";
import { widthOf, writeBold, writeName } from "./paint_marks.js";
import { tickStep, timeText, unitOf } from "./words.js";

const BESIDE = 96; // pixels from the end of the run, where its length stands
const NARROWEST = 420; // pixels of a step
const EDGE = 8; // pixels after it
const FOOT = 150; // for what its axis is
const BOLD = 2; // pixels of an arrow and of a frame
const TICK = 70; // pixels between two times of it, at least

/** [begin, end, how many] of a row's first step, where each is a send and a receive. */
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

/**
 * { number, run, rank, rows, from, to, count, left, right }: which step of which run stands between which pixels;
 * where its ranks all do alike and exchange messages, and all of it is in view. Else undefined.
 */
export function enlargedOf(state) {
  const number = state.runs.length - 1;
  const run = state.runs[number];
  if (!number || state.overlay || String(state.view) !== String(state.whole)) return undefined;
  const rows = state.layout.rows.filter((place) => place.run === number);
  const rank = run.alike?.find((ranks) => ranks.length > 1)?.[0];
  const calls = rows.find(({ row }) => row.lane === COMMUNICATION && row.rank === rank);
  const step = run.each > 1 && calls && stepOf(run, calls.row);
  const left = xOf(state, run.span + shiftOf(state, number)) + BESIDE;
  const right = state.width - RIGHT - 1;
  if (!step || right - left < NARROWEST) return undefined;
  const [from, to, count] = step;
  return { number, run, rank, rows, from, to, count, left, right };
}

/** The rows with what is received over what is sent, as that goes on at once, as high as what is computed over it. */
function rowsOfTwo(rows) {
  return rows.map((place, k) => {
    const isCall = place.row.lane === COMMUNICATION;
    const other = rows[isCall ? k - 1 : k + 1];
    const both = other?.row.rank === place.row.rank ? [other, place] : [place];
    const [top, bottom] = [Math.min(...both.map(({ y }) => y)), Math.max(...both.map(({ y, bar }) => y + bar))];
    const high = Math.floor((bottom - top) / (both.length + 1));
    return isCall ? { ...place, y: bottom - 2 * high, bar: 2 * high } : { ...place, bar: high };
  });
}

/** The bars of a row within [t0, t1), with their names: what is received over what is sent, as long as each takes. */
function paintBars(context, state, { run: number, row, y, bar }, [t0, t1]) {
  const { labels, label, start, end, category } = state.runs[number];
  const isCall = row.lane === COMMUNICATION;
  const high = isCall ? bar / 2 : bar;
  for (let event = row.first; event < row.last; event++) {
    const [from, to] = [Math.max(start[event], t0), Math.min(end[event], t1)];
    if (from >= to || state.hatched[category[event]]) continue;
    const [x, until] = [from, to].map((time) => xOf(state, time + shiftOf(state, number)));
    const named = labels[label[event]];
    const top = isCall && /send/.test(named[1]) ? y + high : y;
    context.fillStyle = state.theme.colours[category[event]];
    context.fillRect(x, top, until - x, high);
    writeName(context, state, { y: top, bar: Math.max(high, NAMED) }, named, category[event], [x, until]);
  }
}

/** Times from the step's begin on, under it. */
function paintTimes(context, near, { number, from, to, right }, bottom) {
  const step = tickStep(TICK * pixelOf(near), 1);
  const [unit, size] = unitOf(to - from);
  context.fillStyle = near.theme.ink;
  context.textAlign = "right";
  context.fillText(`${unit} from the step’s start`, right, bottom + 11);
  context.textAlign = "center";
  for (let time = 0; time <= to - from; time += step) {
    const x = xOf(near, from + time + shiftOf(near, number));
    context.fillRect(Math.round(x), bottom, 1, 4);
    if (x < right - FOOT) context.fillText(String(Number((time / size).toPrecision(3))), x, bottom + 11);
  }
}

/** What the steps are for: [[words, begin, end]] where the rank computes one thing after the first, another later. */
function phasesOf({ label, labels, end, ranks }, { rank, from, count }) {
  const row = ranks.get(rank).lanes[COMPUTE];
  const groups = [];
  for (let i = row?.first ?? 0; i < (row?.last ?? 0); i++) {
    const name = labels[label[i]][0].replace(/_$/, "");
    if (groups.at(-1)?.[0] === name) groups.at(-1)[1]++;
    else groups.push([name, 1]);
    groups.at(-1)[2] = end[i];
  }
  const steps = groups.filter(([, times]) => times > 1);
  if (steps.length < 2 || steps.reduce((sum, [, times]) => sum + times, 0) !== count) return [];
  return steps.map(([name, times, until], k) => [`${times} steps: ${name}`, steps[k - 1]?.[2] ?? from, until]);
}

/** Brackets under the run, with what its steps are for. */
function paintPhases(context, state, step, y) {
  context.textAlign = "center";
  for (const [words, begin, end] of phasesOf(step.run, step)) {
    const [x0, x1] = [begin, end].map((time) => Math.round(xOf(state, time + shiftOf(state, step.number))));
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

/** An arrow from each rank that is seen to one below, and how long its last byte is on the way. */
function paintMessages(context, state, { number, run, from, to }) {
  const { rows } = state.layout;
  const placeOf = (event) => rows.find(({ row }) => event >= row.first && event < row.last);
  run.flow_from.forEach((source, f) => {
    if (run.start[source] < from || run.start[source] >= to) return;
    const [place, target] = [source, run.flow_to[f]].map(placeOf);
    if (!(target?.y > place?.y)) return;
    const [x0, x1, long] = paintMessage(context, state, number, f, BOLD);
    const { ink, near } = state.theme;
    const told = [`${timeText(long)} on the way`];
    if (long > 0) writeBold(context, state, told, [x0, x1], (x0 + x1) / 2, place.y + (3 / 4) * place.bar, [ink, near]);
  });
}

/** Paint it: framed as in the run, on a ground and with an axis of its own. */
export function paintEnlarged(context, state) {
  const step = enlargedOf(state);
  if (!step) return;
  const { number, run, rows, from, to, count, left, right } = step;
  const { theme, layout } = state;
  const near = zoomed(state, number, [from, to], left + BOLD, right - EDGE);
  near.layout = { rows: rowsOfTwo(rows) };
  const [top, bottom] = [rows[0].y - 4, rows.at(-1).y + rows.at(-1).bar + 4];
  const ends = [from, to].map((time) => xOf(state, time + shiftOf(state, number)));
  const over = layout.heads[number].y - 2;
  context.fillStyle = theme.paper; // the axis above is not that of the step
  context.fillRect(left - 8, over, right + 10 - left, layout.height - over);
  context.fillRect(LEFT, bottom, left - LEFT, layout.height - bottom);
  context.fillStyle = theme.near;
  context.fillRect(left, top, right - left, bottom - top);
  paintTimes(context, near, step, bottom);
  paintPhases(context, state, step, bottom + 4);
  context.fillStyle = theme.ink;
  context.textAlign = "left";
  const times = Math.round(pixelOf(state) / pixelOf(near));
  context.fillText(`step 1 of ${count}, enlarged ${times} times`, left, layout.heads[number].y + 8);
  for (const [k, place] of rows.entries()) {
    context.textAlign = "right";
    context.fillStyle = theme.ink;
    if (place.first) context.fillText(`rank ${place.row.rank}`, left - 6, place.y + place.bar / 2);
    context.textAlign = "left";
    paintBars(context, near, near.layout.rows[k], [from, to]);
    if (place.row.lane !== COMMUNICATION) continue;
    context.fillStyle = theme.band;
    const [x0, x1] = [0, run.span].map((time) => xOf(state, time + shiftOf(state, number)));
    context.fillRect(x0, place.y, x1 - x0, place.bar); // send and receive are at once in the run, too
    paintBars(context, state, place, [0, run.span]);
  }
  paintMessages(context, near, step);
  paintFrames(context, state, ends, step, top, bottom);
}
