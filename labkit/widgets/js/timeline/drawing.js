// One frame of the view: the picture, and what stands below it.

import { writeEvents } from "./event_table.js";
import { showButtons, showLegend } from "./frame.js";
import { isZoomed } from "./layout.js";
import { paintOverview } from "./overview.js";
import { paint } from "./paint.js";
import { writeTiles } from "./tiles.js";

/** Draw all there is; the first picture is seen before anything is counted for what stands below it. */
export function draw(view) {
  const { state } = view;
  view.pending = null;
  if (!state.layout) return;
  if (!state.theme.paper) {
    view.retheme(); // not in the page yet: at the next frame
    return;
  }
  if (view.incoming) view.grow();
  paint(view.canvas.getContext("2d"), state);
  showButtons(view.buttons, state, !view.table.hidden);
  showLegend(view.legend, state);
  if (view.isSeen) {
    drawRest(view);
    return;
  }
  view.isSeen = true;
  requestAnimationFrame(() => setTimeout(() => view.frames || !view.state || drawRest(view)));
}

/** Draw strip, numbers and table. */
function drawRest(view) {
  const { state } = view;
  paintOverview(view.strip.getContext("2d"), state);
  const numbers = view.numberTable.write(state);
  [view.root.dataset.numbers] = numbers.map((each) => JSON.stringify(each));
  view.strip.hidden = !isZoomed(state); // else the picture is the overview
  const names = state.runs.map(({ name }) => name);
  writeTiles(view.tiles, numbers, isZoomed(state), names);
  if (!view.table.hidden) writeEvents(view.table, state, view.said);
  view.root.dataset.painted = String(++view.frames);
}
