// What the canvas shows: bars, axis, names of rows, memory, and over them what belongs to single events.
// Whatever paints takes the view's `state`, and listens to nothing.

import { twinOf } from "./complete.js";
import { REGION } from "./kinds.js";
import { LEFT, TOP, holdsWords, ownWindow, pixelOf, ranksText, windowOf, xIn, xOf } from "./layout.js";
import { lateRanks } from "./last_ranks.js";
import { paintLate } from "./late.js";
import { paintOther } from "./forward.js";
import { paintEnlarged } from "./enlarged.js";
import { arrow, paintArrows } from "./paint_arrows.js";
import { paintExposed } from "./paint_exposed.js";
import { paintHeld } from "./paint_held.js";
import { paintNotes } from "./notes.js";
import { paintRegions } from "./paint_regions.js";
import { FONT, paintClockErrors, paintMarks, paintNames, paintOutline, paintSeams, widthOf } from "./paint_marks.js";
import { paintPath } from "./paint_path.js";
import { paintShares } from "./paint_shares.js";
import { rowName } from "./row_names.js";
import { memoryColumns, rowBusy } from "./shares.js";
import { paintSteps } from "./steps.js";
import { bytesText, lasted, tickStep, timeText, unitOf } from "./words.js";

const LATE_FONT = `700 ${FONT}`;
const HEAD_FONT = LATE_FONT.replace("12", "13");
const END_FONT = `600 ${FONT.replace("12", "16")}`;
const [TICK, NEAR] = [90, 65]; // pixels between two ticks, at least; where few have room
const PEAK = 7; // pixels of a peak of memory, at least
const NAME_ROOM = 63; // pixels left of the names of streams
const NAME_APART = 8; // pixels between a rank's name and a lane's
const HALF = 7; // pixels of a line of two, from their middle
const NAME = 12; // pixels from one rank's name to the next, at least
const [MARGIN, INDENT] = [4, 15]; // pixels before names of ranks, and before their numbers under these

/** Clear the ground, paint `pixels` on it, and set the pen for CSS pixels. */
export function begin(context, state, height, pixels) {
  const { ratio, theme, width } = state;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, width * ratio, height * ratio);
  pixels(context, state);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = FONT;
  context.textBaseline = "middle";
}

/** Paint all there is; `shares` paints the bars. */
export function paint(context, state, shares = paintShares) {
  const { layout, right, runs } = state;
  state.marks.clear();
  state.untold = false;
  begin(context, state, layout.height, shares);
  if (runs.length > 1 && !state.overlay) clearOutside(context, state);
  paintAxis(context, state);
  paintRowNames(context, state);
  for (const memory of layout.memories) paintMemory(context, state, memory);
  context.save();
  context.beginPath();
  context.rect(LEFT, 0, right - LEFT, layout.height);
  context.clip();
  paintOther(context, state);
  paintSeams(context, state);
  paintSteps(context, state);
  paintExposed(context, state);
  paintNames(context, state);
  paintRegions(context, state);
  paintLate(context, state);
  paintNotes(context, state);
  if (state.overlay) paintOutline(context, state);
  if (state.arrows) {
    paintHeld(context, state);
    paintArrows(context, state);
  }
  paintEnlarged(context, state);
  if (state.showPath) runs.forEach((run, number) => run.path && paintPath(context, state, number));
  if (state.showPath && runs.some((run) => run.path)) state.marks.add("path");
  paintClockErrors(context, state);
  paintMarks(context, state);
  context.restore();
  paintEnds(context, state);
}

/** Leave no ground of a lane before its run begins and after it ends: there it is not idle. */
function clearOutside(context, state) {
  const { right } = state;
  context.fillStyle = state.theme.paper;
  for (const { run, y, bar } of state.layout.rows) {
    const [from, to] = [0, state.runs[run].span].map((time) =>
      Math.max(LEFT, Math.min(Math.round(xIn(state, run, time)), right)),
    );
    context.fillRect(LEFT, y, from - LEFT, bar);
    context.fillRect(to, y, right - to, bar);
  }
}

/** One line of the grid with its time, where that has room. */
function paintTick(context, state, time, words) {
  const { theme, width, right, layout } = state;
  const x = xOf(state, time);
  context.fillStyle = theme.grid;
  context.fillRect(Math.round(x), TOP - 5, 1, layout.height - TOP + 1);
  context.fillStyle = theme.quiet;
  const half = context.measureText(words).width / 2;
  if (x - half > LEFT - 14 && x + half < Math.min(right + 20, width)) context.fillText(words, x, 8);
}

function paintAxis(context, state) {
  const { view, theme, width, right, layout, overlay } = state;
  if (!state.runs.some(({ span }) => span)) return;
  const step = tickStep((right - LEFT < 4 * TICK ? NEAR : TICK) * pixelOf(state), 1);
  const [unit, size] = unitOf(Math.min(view[1], step * 1e4));
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / size) - 1e-9)));
  context.fillStyle = theme.quiet;
  context.textAlign = "center";
  for (let tick = Math.ceil(view[0] / step - 1e-9); tick * step <= view[1]; tick++) {
    paintTick(context, state, tick * step, ((tick * step) / size).toFixed(digits));
  }
  context.textAlign = "right";
  context.fillText(`time (${unit})`, LEFT - 16, 8);
  if (layout.hasShares) context.fillText(overlay ? "ratio" : "busy", width - 6, 8);
}

/** Names of runs, ranks and lanes, and how busy each row is. */
function paintRowNames(context, state) {
  const { layout, theme, width } = state;
  context.fillStyle = theme.ink;
  context.textAlign = "left";
  context.font = HEAD_FONT;
  for (const head of layout.heads) {
    if (head.y > TOP) context.fillRect(4, head.y - 3, width - 8, 1);
    context.fillText(head.text, 4, head.y + 8);
  }
  context.font = FONT;
  context.fillStyle = theme.quiet;
  for (const { y, text } of layout.gapsIn) context.fillText(text, 4, y + NAME / 2);
  let last = -100;
  for (const place of layout.rows) {
    const { row, y, bar } = place;
    context.textAlign = "left";
    if (place.first && y - last >= NAME) {
      paintName(context, state, place);
      last = y;
    }
    if (!holdsWords(bar)) continue;
    context.fillStyle = theme.quiet;
    context.textAlign = "right";
    if (!row.of) context.fillText(laneName(context, state, place), LEFT - 5, y + bar / 2);
    if (row.lane === REGION || row.of || !layout.hasShares) continue;
    context.fillText(busyText(state, place), width - 6, y + bar / 2);
  }
}

/** A rank's name, and where it ends beside another run; of one that comes last it stands out. */
function paintName(context, state, place) {
  const { row, y, bar, run } = place;
  const isLate = lateRanks(state.runs[run]).includes(row.rank);
  context.fillStyle = state.theme.ink;
  const [name, numbers] = nameOf(context, state, place).split(": ");
  if (isLate) context.font = LATE_FONT;
  const { y: under, bar: high } = (numbers && rowBelow(state, place)) || place;
  const middle = (y + (numbers ? under + high : y + bar)) / 2; // of both rows, where it is as high
  context.fillText(name, MARGIN, middle - (numbers ? HALF : 0), roomFor(context, state, place) - MARGIN);
  if (numbers) context.fillText(numbers, INDENT, middle + HALF);
  context.font = FONT;
}

/** Where each of two runs ends, a line with its length. */
function paintEnds(context, state) {
  const { runs, layout, theme, width, right, overlay } = state;
  if (runs.length < 2 || overlay) return;
  context.font = END_FONT;
  context.fillStyle = theme.ink;
  layout.heads.forEach(({ y }, number) => {
    const run = runs[number];
    const bottom = (layout.heads[number + 1]?.y ?? layout.height) - 4;
    const x = Math.ceil(xIn(state, number, run.measured?.[1] ?? run.span));
    if (x < LEFT || x > right + 1) return;
    const words = timeText(lasted(run));
    context.fillRect(x, y + 2, 1.5, bottom - y - 2);
    const isRight = x + 8 + context.measureText(words).width < width;
    context.textAlign = isRight ? "left" : "right";
    context.fillText(words, x + (isRight ? 6 : -5), y + 8);
  });
  context.font = FONT;
}

const laneName = (context, state, place) => rowName(context, state, place, () => nameOf(context, state, place));

/** Pixels before the name of a row's lane; a stream's name takes what is left. */
function roomFor(context, state, place) {
  if (place.row.stream) return NAME_ROOM;
  const words = holdsWords(place.bar) && !place.row.of ? laneName(context, state, place) : "";
  return LEFT - 5 - NAME_APART - widthOf(context, state, words);
}

const rowBelow = ({ layout: { rows } }, place) => rows[rows.indexOf(place) + 1];

/** The name of a rank, or of those it stands for. */
function nameOf(context, state, place) {
  const { runs, folded } = state;
  const {
    row: { rank, of },
    run,
  } = place;
  if (of) return `all ${runs[run].ranks.size} ranks`;
  const { alike = [], each = 1 } = runs[run];
  const group = folded && each === 1 && alike.find(([first]) => first === rank);
  if (!group) return `rank ${rank}`;
  const words = ranksText(group);
  const below = rowBelow(state, place);
  const hasLine = below?.row.rank === rank && below.run === run && holdsWords(below.bar);
  const fits = (text, at, from) => widthOf(context, state, text) <= roomFor(context, state, at) - from;
  const [all, listed] = [`▸ ${words} alike`, `▸ ${words.replaceAll(", ", ",")}`];
  if (fits(all, place, MARGIN)) return all;
  if (hasLine && fits(words, below, INDENT)) return `▸ ${group.length} alike: ${words}`;
  return fits(listed, place, MARGIN) ? listed : `▸ ${group.length} alike`;
}

/** How busy a row is; of an outlined run how much longer it is busy than the other. */
function busyText(state, { row, run }) {
  const { runs } = state;
  const [t0, t1] = ownWindow(state, run);
  const busy = rowBusy(runs[run], row, t0, t1);
  if (!state.overlay) return t1 > t0 ? `${((100 * busy) / (t1 - t0)).toFixed(0)} %` : "–";
  const expected = rowBusy(runs[1], twinOf(runs[1], row), ...windowOf(state, 1));
  return expected ? `× ${(busy / expected).toPrecision(3)}` : "–";
}

/** The most that any rank of any run held. */
function mostHeld(runs) {
  return Math.max(...runs.flatMap(({ held }) => [...held.values()].map(({ most }) => most)), 1);
}

/** Draw what a rank held over time, all to one scale, with an arrow to the most it held. */
function paintMemory(context, state, { y, height, rank, run }) {
  const { width, theme, runs } = state;
  const [t0, t1] = ownWindow(state, run);
  const from = xIn(state, run, t0);
  const columns = Math.round(xIn(state, run, t1) - from);
  if (columns < 1) return;
  const base = y + height;
  const scale = (height - 1) / mostHeld(runs);
  const memory = runs[run].held.get(rank);
  context.fillStyle = theme.held; // pale, for words stand on it, with its edge in ink
  context.strokeStyle = theme.quiet;
  context.beginPath();
  context.moveTo(from, base);
  memoryColumns(memory, t0, t1, columns).forEach((value, x) => {
    for (const side of [0, 1]) context.lineTo(from + x + side, base - value * scale);
  });
  context.lineTo(from + columns, base);
  context.fill();
  context.stroke();
  context.strokeStyle = theme.ink;
  const peak = xIn(state, run, memory.peak);
  const isSeen = peak >= from && peak <= from + columns;
  if (isSeen) {
    context.fillStyle = theme.held; // a peak of a moment is wider than the arrow that points to it
    context.fillRect(peak - PEAK / 2, base - memory.most * scale, PEAK, memory.most * scale);
    context.fillStyle = theme.ink;
    arrow(context, peak, base, peak, base - memory.most * scale, 1);
  }
  context.fillStyle = theme.quiet;
  context.textAlign = "right";
  context.fillText(`memory, ${isSeen ? "↑ " : ""}peak`, LEFT - 5, y + height / 2);
  context.fillText(bytesText(memory.most), width - 1, y + height / 2); // beside the area: its edge goes through no word
}
