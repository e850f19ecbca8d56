// Named regions: brackets above a rank, those inside others a little lower.

import { REGION, labelOf } from "./kinds.js";
import { LEFT, holdsNames, windowOf, xIn } from "./layout.js";
import { widthOf } from "./paint_marks.js";
import { lowerBound } from "./search.js";

const NARROWEST = 2; // pixels of a bracket
const STEP = 2; // pixels from one depth to the next

/** Of each region of a row how many others it lies in; regions are sorted by begin, the longer first. */
function depthsOf({ end, start }, { first, last }) {
  const depths = new Uint8Array(last - first);
  const open = [];
  for (let i = first; i < last; i++) {
    while (open.length && open.at(-1) <= start[i]) open.pop();
    depths[i - first] = open.length;
    open.push(end[i]);
  }
  return depths;
}

function paintBracket(context, x0, x1, y, foot) {
  context.fillRect(x0, y, Math.max(x1 - x0, 1), 1);
  for (const x of [x0, Math.max(x1 - 1, x0)]) context.fillRect(x, y, 1, foot - y);
}

/** Draw the brackets in view, and their names where there is room until another one begins. */
export function paintRegions(context, state) {
  context.textAlign = "left";
  context.fillStyle = state.theme.quiet;
  for (const { row, run: number, y, bar } of state.layout.rows) {
    if (row.lane === REGION) paintRow(context, state, number, row, y, bar);
  }
}

function paintRow(context, state, number, row, y, bar) {
  const run = state.runs[number];
  const right = state.right;
  const stop = lowerBound(run.start, row.first, row.last, windowOf(state, number)[1]);
  row.depths ??= depthsOf(run, row);
  for (let i = row.first; i < stop; i++) {
    const x0 = xIn(state, number, run.start[i]);
    const x1 = xIn(state, number, run.end[i]);
    if (x1 < LEFT || x1 - x0 < NARROWEST) continue;
    paintBracket(context, x0, x1, y + Math.min(STEP * row.depths[i - row.first], bar / 2), y + bar);
    if (!holdsNames(bar)) continue;
    const left = Math.max(x0, LEFT);
    const next = i + 1 < row.last ? xIn(state, number, run.start[i + 1]) : x1;
    const room = Math.min(x1, next, right) - left - 6;
    const [name] = labelOf(run, i);
    if (widthOf(context, state, name) <= room) context.fillText(name, left + 4, y + bar - 5);
  }
}
