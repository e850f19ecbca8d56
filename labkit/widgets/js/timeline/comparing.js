// Two runs on one axis: by how much the second is shifted.

import { rowOf, twinOf } from "./complete.js";
import { button, choice, element } from "./element.js";
import { isZoomed } from "./layout.js";
import { labelOf } from "./kinds.js";
import { unitOf } from "./words.js";

const AROUND = 200; // pixels of a view that are not the rows of two runs
const PANELS = ".jp-WindowedPanel-outer, .jp-Notebook"; // what a notebook is scrolled in
const SLACK = 4; // pixels
const ROOM = [200, 640]; // pixels that rows have, at least and at most
const ALIGNMENTS = ["begin", "end", "event in focus"];

/** Put the offset's box and the list of alignments beside the buttons. */
export function buildComparing(view, other) {
  const [unit, size] = unitOf(view.state.runs[0].span);
  const label = `offset of ${other.name} in ${unit}`;
  const value = String(view.state.offset / size);
  view.offsetBox = element("input", { type: "number", step: "any", value, "aria-label": label });
  view.offsetBox.addEventListener("change", () => view.setOffset(Number(view.offsetBox.value) * size));
  const list = choice("align the runs at", ALIGNMENTS, (at) => view.align(at));
  view.comparing.append("align ", list, " offset ", view.offsetBox, ` ${unit}`);
  view.unit = size;
}

/** How many pixels the rows of two runs may take, so that all of the view is seen at once. */
export function roomOf(root) {
  const height = root.closest(PANELS)?.clientHeight || window.innerHeight;
  return Math.min(Math.max(height - AROUND, ROOM[0]), ROOM[1]);
}

const LOW = 1000; // pixels of a window in which a notebook leaves a picture little more than half

/** Whether rows are to be low, so that a notebook's window holds all ranks beside the text that speaks of them. */
export const isLow = (root) => root.closest(PANELS) !== null && window.innerHeight < LOW;

/** Say where the rows of two runs have no room, and offer one row for each run. */
export function tellRoom(view) {
  const { state, notice } = view;
  const isFolded = state.strips;
  const fits = state.runs.length < 2 || state.overlay || state.layout.height <= state.room + SLACK;
  notice.hidden = fits && !isFolded;
  if (notice.hidden) return;
  const fold = () => {
    state.strips = !isFolded;
    state.focus = null;
    view.resize();
  };
  const told = isFolded
    ? "Each run is one row: in every column, the part of its ranks that compute, communicate, are blocked."
    : "The window is too low for both runs at once.";
  notice.replaceChildren(told, " ", button(isFolded ? "All ranks" : "One row a run", "fold, unfold both runs", fold));
}

/** Shift the second run; the view stays where it is, unless it showed the whole. */
export function setOffset(view, offset) {
  if (!Number.isFinite(offset)) return;
  const { state } = view;
  const isFollowed = !isZoomed(state);
  state.offset = Math.round(offset);
  view.offsetBox.value = String(Number((offset / view.unit).toPrecision(6)));
  view.fit();
  view.show(...(isFollowed ? state.whole : state.view));
}

/** The events of a row that bear a name. */
function eventsNamed(run, name, { first, last }) {
  const events = Array.from({ length: last - first }, (_, i) => first + i);
  return events.filter((event) => labelOf(run, event)[0] === name);
}

/** Shift the second run so that the event in focus begins in both at the same time. */
function alignAtFocus(view) {
  const { runs, focus } = view.state;
  const [run, other] = runs;
  if (!focus || focus.run !== 0) {
    view.say("First select an event of the first run, by mouse or keys.");
    return;
  }
  const [name] = labelOf(run, focus.event);
  const row = rowOf(run, focus.event);
  const theirs = twinOf(other, row);
  const which = eventsNamed(run, name, row).indexOf(focus.event);
  const twin = theirs && eventsNamed(other, name, theirs)[which];
  if (twin === undefined) view.say(`The second run has no matching ${name} on rank ${row.rank}.`);
  else view.setOffset(run.start[focus.event] - other.start[twin]);
}

/** Shift the second run so that both begin, end, or the event in focus begins, at the same time. */
export function align(view, at) {
  const [run, other] = view.state.runs;
  if (at === "begin") view.setOffset(0);
  else if (at === "end") view.setOffset(run.span - other.span);
  else alignAtFocus(view);
}
