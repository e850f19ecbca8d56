// Pointer and wheel, on the picture and on the strip below it.

import { hit, snap } from "./edges.js";
import { LEFT, pixelOf, shiftOf, timeOf, wholeOf } from "./layout.js";
import { measure } from "./moving.js";

const NEAR = 6; // pixels within which ends snap to edges, and edges of the strip's window are taken
const NAMES = 55; // pixels of the names of lanes, right of those of ranks
const STILL = 4; // pixels that a hand moves without meaning to
const WHEEL = 200; // the most that one turn counts
const between = (low, value, high) => Math.max(low, Math.min(value, high));

/** Listen to the pointer on the picture and on the strip. */
export function listenToPointer(view) {
  const { canvas, strip } = view;
  const on = (target, types, listener) => {
    for (const type of types.split(" ")) target.addEventListener(type, listener, { passive: false });
  };
  on(canvas, "wheel", (event) => turnWheel(view, event));
  on(canvas, "pointermove", (event) => move(view, event));
  on(canvas, "pointerleave", () => view.hover(null));
  on(canvas, "pointerdown", (event) => press(view, event));
  on(canvas, "pointerup pointercancel", () => {
    view.drag = null;
  });
  on(canvas, "dblclick", () => view.press("Enter"));
  on(strip, "pointerdown", (event) => pressStrip(view, event));
  on(strip, "pointermove", (event) => moveStrip(view, event));
  on(strip, "pointerup pointercancel", () => {
    view.stripDrag = null;
  });
}

/** Zoom, or move sideways, with Ctrl or Cmd or in the focused picture; with Alt make rows higher; else scroll. */
function turnWheel(view, event) {
  if (event.altKey) {
    event.preventDefault();
    view.stretch(Math.exp(-between(-WHEEL, event.deltaY, WHEEL) * 0.003), event.offsetY - view.plot.scrollTop);
    return;
  }
  if (!(event.ctrlKey || event.metaKey || document.activeElement === view.canvas)) return;
  event.preventDefault();
  const { right, width } = view.state;
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
    view.pan((event.deltaX || event.deltaY) / width);
    return;
  }
  const factor = Math.exp(between(-WHEEL, event.deltaY, WHEEL) * 0.003);
  view.zoom(factor, between(0, (event.offsetX - LEFT) / (right - LEFT), 1));
}

/** The event under the pointer, as { run, event }, or null. */
export function eventUnder(state, { offsetX, offsetY }) {
  const { layout, runs } = state;
  const place = layout.bars.find(({ y, bar }) => offsetY >= y - 1 && offsetY <= y + bar + 1);
  if (!place || offsetX < LEFT) return null;
  const time = timeOf(state, offsetX) - shiftOf(state, place.run);
  const event = hit(runs[place.run], place.row, time, 3 * pixelOf(state));
  return event < 0 ? null : { run: place.run, event };
}

function press(view, event) {
  if (event.button) return;
  if (event.offsetX < LEFT - NAMES && view.state.runs.some(({ alike }) => alike?.length)) {
    view.fold(); // the names of ranks
    return;
  }
  if (event.offsetX < LEFT && view.state.runs[0].streams) {
    view.press("s"); // those of lanes
    return;
  }
  view.canvas.setPointerCapture(event.pointerId);
  view.drag = { x: event.offsetX, view: view.state.view, moves: event.shiftKey, began: false };
  const found = view.under(event);
  if (found) view.setFocus(found.run, found.event);
}

/** Measure from where the pointer was pressed, with Shift move the view; without a press tell what is under it. */
function move(view, event) {
  const { drag, state } = view;
  if (!drag) {
    view.hover(view.under(event), event);
    return;
  }
  if (!drag.began && Math.abs(event.offsetX - drag.x) < STILL) return;
  drag.began = true;
  if (drag.moves) {
    const by = (drag.x - event.offsetX) * pixelOf(state);
    view.show(drag.view[0] + by, drag.view[1] + by);
    return;
  }
  const ends = [drag.x, between(LEFT, event.offsetX, state.right)];
  measure(view, ...ends.map((x) => snap(state, timeOf(state, x), NEAR * pixelOf(state))));
}

function pressStrip(view, event) {
  view.strip.setPointerCapture(event.pointerId);
  const strip = wholeOf(view.state);
  const [a, b] = view.state.view;
  const time = timeOf(strip, event.offsetX);
  const edge = [a, b].findIndex((each) => Math.abs(each - time) < NEAR * pixelOf(strip));
  if (edge < 0 && (time < a || time > b)) view.pan((time - (a + b) / 2) / (b - a));
  view.stripDrag = { time, edge, view: view.state.view };
}

/** Move the window, or the edge that was taken. */
function moveStrip(view, event) {
  if (!view.stripDrag) return;
  const { time, edge, view: before } = view.stripDrag;
  const by = timeOf(wholeOf(view.state), event.offsetX) - time;
  const [a, b] = before.map((each, i) => (edge < 0 || i === edge ? each + by : each));
  if (b - a > 1) view.show(a, b);
}
