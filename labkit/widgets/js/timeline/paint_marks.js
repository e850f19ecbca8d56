// Over the bars: names, the outline of a second run, clocks' errors, focus, interval and cursor.

import { twinOf } from "./complete.js";
import { RECEIVE, REGION, SEND, isCopy, labelOf } from "./kinds.js";
import { LEFT, TOP, holdsNames, pixelOf, placeOf, windowOf, within, xIn, xOf } from "./layout.js";
import { lowerBound } from "./search.js";
import { timeText } from "./words.js";

const MOST_OUTLINES = 1500;
const PAD = 4; // pixels beside words
export const FONT = "12px system-ui, sans-serif";
const SEAM = 6; // pixels of a bar, at least, whose begin is parted from the one before

/** Call `draw` with each event in view that is at least `least` pixels wide, and its begin and width in pixels. */
export function eachWide(state, { run: number, row }, least, draw) {
  const run = state.runs[number];
  const [t0, t1] = windowOf(state, number);
  const pixel = pixelOf(state);
  if (row.longest < least * pixel) return;
  const stop = lowerBound(run.segmentStart, row.from, row.to, t1);
  for (let s = Math.max(row.from, lowerBound(run.segmentStart, row.from, row.to, t0) - 1); s < stop; s++) {
    const wide = (run.segmentEnd[s] - run.segmentStart[s]) / pixel;
    if (wide >= least) draw(run.owner[s], LEFT + (run.segmentStart[s] - t0) / pixel, wide, run.segmentCategory[s]);
  }
}

export function widthOf(context, state, text) {
  let width = state.widths.get(text);
  if (width === undefined) {
    width = context.measureText(text).width;
    state.widths.set(text, width);
  }
  return width;
}

/** Write words in bold between two pixels, about a middle; without colours nothing. Returns where they end, else 0. */
export function writeBold(context, state, words, [from, to], middle, y, colours) {
  const [left, right] = within(state, from, to);
  context.font = `700 ${FONT}`;
  const half = context.measureText(words).width / 2 + PAD;
  const fits = 2 * half <= right - left;
  const x = Math.min(Math.max(middle, left + half), right - half);
  if (fits && colours) {
    context.fillStyle = colours[1]; // no line goes through words
    context.fillRect(x - half, y - 7, 2 * half, 14);
    context.fillStyle = colours[0];
    context.fillText(words, x, y);
  }
  context.font = FONT;
  return fits ? x + half : 0;
}

/** Letters that a name has at least where its last words are left out: fewer say nothing. */
const TOLD = 6;

/** The longest of an event's names that fits: with its peer, alone, or its first words, none of them cut. */
function nameFor(context, state, [full, kind, , peer], room) {
  const shown = full.replace(/_$/, ""); // that it works in place says the event's own words
  const name = state.runs.length > 1 ? shown.replace(/^i(?=send$|recv$)/, "") : shown; // one act, one name in two runs
  const way = /recv|serve/.test(kind) ? "←" : "→";
  const whole = [peer >= 0 ? `${name} ${way} ${peer}` : name, name];
  const found = whole.find((each) => each && widthOf(context, state, each) <= room);
  if (found || !name) return found;
  const words = name.split(/[_ .]/).map((_, k, all) => name.slice(0, all.slice(0, k + 1).join(" ").length));
  const told = words.filter((each) => each.length >= TOLD).map((each) => `${each}…`);
  return told.findLast((each) => widthOf(context, state, each) <= room);
}

/** Part calls that follow each other at once: a line of ground where one begins, in bars that are wide enough. */
export function paintSeams(context, state) {
  context.fillStyle = state.theme.band;
  for (const place of state.layout.bars) {
    if (place.row.lane === REGION) continue;
    let last = { event: -1, end: -1 };
    eachWide(state, place, SEAM, (event, x, wide) => {
      if (event !== last.event && Math.abs(x - last.end) < 0.5) context.fillRect(x - 0.5, place.y, 1, place.bar);
      last = { event, end: x + wide };
    });
  }
}

/** Write an event's name into its bar, where it fits between two pixels. */
export function writeName(context, state, { y, bar }, label, category, [left, right]) {
  const text = holdsNames(bar) && nameFor(context, state, label, right - left - 2);
  if (!text) return;
  context.fillStyle = isCopy(label) ? state.theme.ink : state.theme.onBar[category];
  const pad = Math.min(7, (right - left - widthOf(context, state, text)) / 2);
  context.fillText(text, left + pad, y + bar / 2 + 0.5);
}

/** Where a name stands: of what goes over both tracks of a row, a barrier, in the middle of the two. */
const lineOf = ({ row: { skips }, y, bar }, [, , category]) =>
  !skips || category === SEND || category === RECEIVE ? { y, bar } : { y: skips === SEND ? y : y - bar, bar: 2 * bar };

/** Write names into bars that are wide enough. */
export function paintNames(context, state) {
  context.textAlign = "left";
  for (const place of state.layout.bars) {
    const run = state.runs[place.run];
    if (place.row.lane === REGION || !holdsNames(place.bar)) continue;
    eachWide(state, place, 14, (event, x, wide, category) => {
      const ends = within(state, x, x + wide);
      const label = labelOf(run, event);
      if (!state.hatched[category]) writeName(context, state, lineOf(place, label), label, category, ends);
    });
  }
}

/** Draw the second run's bars as dashed outlines over the first one's. */
export function paintOutline(context, state) {
  context.beginPath();
  for (const { row, y, bar } of state.layout.rows) {
    const twin = twinOf(state.runs[1], row);
    if (!twin || row.lane === REGION) continue;
    let drawn = 0;
    eachWide(state, { run: 1, row: twin }, 3, (event, x, wide) => {
      if (drawn < MOST_OUTLINES) context.rect(Math.round(x) + 0.5, y - 1.5, Math.round(wide), bar + 2);
      drawn++;
    });
  }
  // Dashes of ink, gaps of ground: one of the two stands out from a bar of any colour.
  ["ink", "paper"].forEach((colour, i) => {
    context.strokeStyle = state.theme[colour];
    context.setLineDash([3, 3]);
    context.lineDashOffset = 3 * i;
    context.stroke();
  });
  context.setLineDash([]);
}

/** A line with a cross line at either end. */
function whisker(context, x, reach, y) {
  context.moveTo(x - reach, y);
  context.lineTo(x + reach, y);
  for (const end of [x - reach, x + reach]) {
    context.moveTo(end, y - 3);
    context.lineTo(end, y + 3);
  }
}

/** Draw how far a clock may be off, as whiskers at the edges of bars wide enough to carry them. */
export function paintClockErrors(context, state) {
  context.beginPath();
  for (const place of state.layout.rows) {
    const reach = state.runs[place.run].errorOf(place.row.rank) / pixelOf(state);
    if (reach < 1.5) continue;
    state.marks.add("clock");
    const y = place.y + (holdsNames(place.bar) ? place.bar - 2 : place.bar / 2); // under the name
    eachWide(state, place, Math.min(reach, 12), (event, x, wide) => {
      for (const edge of [x, x + wide]) whisker(context, edge, reach, y);
    });
  }
  for (const [colour, thick] of [
    [state.theme.paper, 3],
    [state.theme.quiet, 1],
  ]) {
    context.strokeStyle = colour;
    context.lineWidth = thick;
    context.stroke();
  }
}

/** Draw the measured interval, with its length at the bottom. */
function paintMeasured(context, state) {
  const { layout, theme, measured, right } = state;
  const [a, b] = measured.map((time) => xOf(state, time));
  context.fillStyle = theme.selection;
  context.fillRect(a, TOP - 4, b - a, layout.height);
  context.fillStyle = theme.ink;
  for (const x of [a, b]) context.fillRect(Math.round(x), TOP - 4, 1, layout.height);
  const text = timeText(measured[1] - measured[0]);
  const wide = context.measureText(text).width + 8;
  const left = Math.max(LEFT, Math.min((a + b - wide) / 2, right - wide));
  context.fillStyle = theme.ink;
  context.fillRect(left, layout.height - 18, wide, 16);
  context.fillStyle = theme.paper;
  context.textAlign = "left";
  context.fillText(text, left + 4, layout.height - 10);
}

/** Frame the event in focus in a colour no bar has, set off from bars of any colour by the ground. */
function paintFocus(context, state) {
  const { focus, theme } = state;
  const place = placeOf(state, focus.run, focus.event);
  if (!place) return;
  const run = state.runs[focus.run];
  const [x0, x1] = [run.start, run.end].map((times) => xIn(state, focus.run, times[focus.event]));
  for (const [out, colour] of [
    [1, theme.paper],
    [2.5, theme.ink],
  ]) {
    context.lineWidth = 2;
    context.strokeStyle = colour;
    context.strokeRect(x0 - out, place.y - out, Math.max(x1 - x0, 1) + 2 * out, place.bar + 2 * out);
  }
  context.lineWidth = 1;
}

/** Frame what is one thing with the event under the pointer or in focus, on every rank. */
function paintLit(context, state) {
  const run = state.runs[state.litRun];
  for (const event of state.lit) {
    const place = placeOf(state, state.litRun, event);
    if (!place) continue;
    const x0 = xIn(state, state.litRun, run.start[event]);
    const wide = Math.max(xIn(state, state.litRun, run.end[event]) - x0, 1);
    context.lineWidth = holdsNames(place.bar) ? 2 : 1;
    context.strokeStyle = state.theme.ink;
    context.strokeRect(x0 - 0.5, place.y - 0.5, wide + 1, place.bar + 1);
  }
  context.lineWidth = 1;
}

/** Draw the event in focus and what is lit, the measured interval and the cursor. */
export function paintMarks(context, state) {
  if (state.lit.size > 1) paintLit(context, state);
  if (state.measured) paintMeasured(context, state);
  if (state.focus) paintFocus(context, state);
  if (state.cursor === null) return;
  context.fillStyle = state.theme.ink;
  context.fillRect(Math.round(xOf(state, state.cursor)), TOP - 4, 1, state.layout.height);
}
