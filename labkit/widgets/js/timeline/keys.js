// What keys do.

import { toggleHelp } from "./frame.js";
import { asCluster } from "./layout.js";
import { measureFrom, play, step, stepEdge, stepRow, zoomToMark } from "./moving.js";
import { toggleStreams } from "./streams.js";
import { named } from "./words.js";

const FACTOR = 1.6; // of a step of zooming
const SAME = { "=": "+", _: "-" };

const ACTS = {
  ArrowLeft: (view) => step(view, -1),
  ArrowRight: (view) => step(view, 1),
  ArrowUp: (view) => stepRow(view, -1),
  ArrowDown: (view) => stepRow(view, 1),
  "+": (view) => view.zoom(1 / FACTOR, anchor(view.state)),
  "-": (view) => view.zoom(FACTOR, anchor(view.state)),
  Home: (view) => view.show(...view.state.whole),
  PageUp: (view) => view.pan(-0.5),
  PageDown: (view) => view.pan(0.5),
  Enter: zoomToMark,
  "[": (view) => stepEdge(view, -1),
  "]": (view) => stepEdge(view, 1),
  " ": play,
  m: measureFrom,
  c: togglePath,
  a: toggleArrows,
  f: (view) => view.fold(),
  o: toggleOutline,
  r: toggleCluster,
  s: toggleStreams,
  n: toggleSpans,
  y: toggleMemory,
  ">": (view) => view.stretch(FACTOR),
  "<": (view) => view.stretch(1 / FACTOR),
  t: (view) => toggle(view.table),
  "?": toggleHelp,
  Escape: (view) =>
    Object.assign(view.state, { focus: null, lit: new Set(), measured: null, cursor: null, from: null }),
};

/** Whether a key comes without Ctrl and the like, which are the page's; Shift+Enter runs a cell. */
export const isPlain = (event) =>
  !event.ctrlKey && !event.metaKey && !event.altKey && !(event.shiftKey && event.key === "Enter");

/** Do what a key that was pressed in the picture says; F5 and F12 are the browser's. */
export function hearKey(view, event) {
  if (/^(Tab|F\d+)$/.test(event.key) || !isPlain(event)) return;
  event.preventDefault();
  view.press(event.key);
}

/** Do what a key says. */
export function pressKey(view, key) {
  ACTS[SAME[key] ?? key]?.(view);
  view.invalidate();
}

/** Around which share of the view it is zoomed: the cursor's, the focused event's, the middle. */
function anchor({ focus, runs, view, cursor }) {
  const middle = () => (runs[focus.run].start[focus.event] + runs[focus.run].end[focus.event]) / 2;
  const time = cursor ?? (focus ? middle() : Number.NaN);
  const share = (time - view[0]) / (view[1] - view[0]);
  return share > 0 && share < 1 ? share : 0.5;
}

function toggle(part) {
  part.hidden = !part.hidden;
}

function toggleArrows(view) {
  const { state } = view;
  state.arrows = !state.arrows;
  const crowded = "Too many messages to draw: select an event for its arrows, or zoom in.";
  const on = state.crowded ? crowded : "Arrows on.";
  view.say(state.arrows ? on : "Arrows off.");
}

function toggleOutline(view) {
  const { state } = view;
  state.overlay = state.runs.length > 1 && !state.overlay;
  state.focus = null;
  view.resize();
}

/** One row a rank, or a row for each of its lanes. */
function toggleCluster(view) {
  const { state } = view;
  const before = asCluster(state);
  state.cluster = !before;
  state.strips = false;
  if (asCluster(state) === before) return;
  state.focus = null;
  view.resize();
}

/** Show the brackets that say no more than colours do, or hide them. */
function toggleSpans(view) {
  view.state.spans = !view.state.spans;
  view.state.focus = null;
  view.resize();
}

function toggleMemory(view) {
  const { state } = view;
  if (!state.runs.some(({ memory }) => memory.length)) {
    view.say("No memory was recorded.");
    return;
  }
  state.memory = !state.memory;
  view.resize();
  if (state.memory && !state.layout.memories.length) view.say("Rows are too short for memory: press > to grow them.");
}

function togglePath(view) {
  const { state } = view;
  const { runs } = state;
  if (!runs[0].path) {
    view.say("The critical path has not arrived yet.");
    return;
  }
  state.showPath = !state.showPath;
  const told = runs.map((run) => named(run, run.path.text, ": ")).join(" ");
  view.say(state.showPath ? told : "Critical path off.");
}
