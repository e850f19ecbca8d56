// One frame of the view: the picture, and what stands below it.

import { writeEvents } from "./event_table.js";
import { showButtons, showLegend } from "./frame.js";
import { isZoomed } from "./layout.js";
import { paintOverview } from "./overview.js";
import { paint } from "./paint.js";
import { isOfSteps, stepEdges } from "./steps.js";
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
  const context = view.canvas.getContext("2d");
  paint(context, state);
  if (!view.isSized && view.plot.clientWidth) {
    view.isSized = true;
    if (state.untold) makeRoom(view, context);
  }
  showButtons(view.buttons, state, !view.table.hidden);
  showLegend(view.legend, state);
  if (view.isSeen) {
    drawRest(view);
    return;
  }
  view.isSeen = true;
  requestAnimationFrame(() => setTimeout(() => view.frames || !view.state || drawRest(view)));
}

/**
 * Where a narrow picture has no room for the words of waits: begin with the first step where the title speaks of every
 * step, else leave no room for words.
 */
function makeRoom(view, context) {
  const { state } = view;
  const [run] = state.runs;
  const edges = isOfSteps(run.title) && stepEdges(run);
  if (edges) view.begun = state.view = edges.slice(0, 2);
  else state.mute = true;
  view.resize();
  paint(context, state);
}

/** Draw strip, numbers and table. */
function drawRest(view) {
  const { state } = view;
  paintOverview(view.strip.getContext("2d"), state);
  const numbers = view.numberTable.write(state);
  [view.root.dataset.numbers] = numbers.map((each) => JSON.stringify(each));
  const names = state.runs.map(({ name }) => name);
  const isBegun = state.view === view.begun; // then the first step stands for all
  const isPart = isZoomed(state) && !isBegun;
  view.root.dataset.begun = String(isBegun);
  view.strip.hidden = !isPart; // else the picture is the overview
  writeTiles(view.tiles, isBegun ? view.numberTable.wholes : numbers, isPart, names);
  if (!view.table.hidden) writeEvents(view.table, state, view.said);
  view.root.dataset.painted = String(++view.frames);
}
