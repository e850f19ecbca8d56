// What stands around the canvas: buttons, legend, strip, detail, numbers, help, table.

import { isCluster } from "./cluster.js";
import { button, choice, element } from "./element.js";
import { asCluster } from "./layout.js";
import { hidesSome } from "./paint_exposed.js";

const KEYS = [
  ["← →", "previous, next event of the row"],
  ["↑ ↓", "row above, below"],
  ["+ −", "zoom in, out"],
  ["Home", "whole run"],
  ["PgUp PgDn", "earlier, later"],
  ["Enter", "zoom to the event or the measured interval"],
  ["[ ]", "cursor to the previous, next edge of any event"],
  ["Space", "let the cursor run, stop it"],
  ["m", "measure from the cursor on"],
  ["c", "critical path"],
  ["o", "outline"],
  ["r", "one row a rank, or all rows"],
  ["y", "memory"],
  ["> <", "rows higher, lower"],
  ["a", "arrows"],
  ["f", "fold or unfold ranks that are alike; so does a click on their name"],
  ["t", "table"],
  ["Esc", "clear marks"],
  ["?", "these keys"],
];
const POINTER =
  "Drag to measure (ends snap to edges of events), Shift+drag to move, double click to zoom to an event, Ctrl or " +
  "Cmd+wheel (in the focused picture the wheel alone) to zoom, Alt+wheel for higher rows; drag the strip below to " +
  "move, its edges to zoom.";
const FORMATS = ["PNG", "SVG", "HTML", "Chrome trace"];

function keysAndPointer() {
  const keys = KEYS.flatMap(([key, what]) => [element("dt", {}, key), element("dd", {}, what)]);
  const words = element("p", {}, POINTER);
  return element("div", { class: "labkit-help", hidden: true }, element("dl", {}, ...keys), words);
}

/** The list of formats, which stands at its name again when one was chosen. */
function exportList(save) {
  const list = choice("Export", ["Export", ...FORMATS], (format) => {
    list.selectedIndex = 0;
    save(format);
  });
  return list;
}

/** The buttons that are pressed or not. */
function switches(key) {
  return {
    arrows: key("Arrows", "a", "messages from send to receive"),
    path: key("Critical path", "c", "the chain of work and messages that decided when the run ended"),
    outline: key("Outline", "o", "second run as an outline over the first, or below it"),
    cluster: key("Cluster", "r", "one row a rank: work, and communication thin beneath it"),
    memory: key("Memory", "y", "what each rank held over time"),
    table: key("Table", "t", "numbers and events in view as a table"),
  };
}

/** Build the view's elements into its root, and return them by name. */
export function buildFrame(root, { press, save }) {
  const key = (label, name, title) => button(label, `${title} (${name})`, () => press(name));
  const isPage = root.tagName === "MAIN"; // of its own, and the title is the page's
  const title = element(isPage ? "h1" : "span", { class: "labkit-title" });
  const buttons = switches(key);
  const comparing = element("span", { class: "labkit-compare" });
  const zooms = [key("Fit", "Home", "whole run"), key("−", "-", "zoom out"), key("+", "+", "zoom in")];
  const shown = [
    buttons.arrows,
    buttons.path,
    buttons.outline,
    comparing,
    buttons.cluster,
    buttons.memory,
    buttons.table,
  ];
  const head = element("div", { class: "labkit-head" }, title, ...zooms, ...shown);
  head.append(exportList(save), key("?", "?", "keys"));
  const canvas = element("canvas", { tabindex: "0", role: "application", "aria-roledescription": "timeline" });
  const region = { hidden: true, tabindex: "0", role: "region", "aria-label": "events in view" };
  const parts = {
    legend: element("div", { class: "labkit-legend" }),
    plot: element("div", { class: "labkit-plot" }, canvas),
    strip: element("canvas", { class: "labkit-strip", "aria-hidden": "true" }),
    detail: element("div", { class: "labkit-detail" }),
    numbers: element("table", { class: "labkit-numbers", tabindex: "0", "aria-label": "numbers" }),
    help: keysAndPointer(),
    table: element("div", { class: "labkit-table", ...region }),
    tip: element("div", { class: "labkit-tip", hidden: true, "aria-hidden": "true" }),
    spoken: element("div", { class: "labkit-spoken", "aria-live": "polite", role: "status" }),
  };
  root.classList.add("labkit-timeline");
  root.append(head, ...Object.values(parts));
  return { title, buttons, comparing, canvas, ...parts };
}

function categoryPatch([name, , , isHatched, isDotted], c) {
  const kind = (isHatched && "labkit-hatched") || (isDotted && "labkit-dotted") || "";
  const patch = element("i", { "data-category": c, class: kind });
  return element("span", {}, patch, name);
}

/** What colours, emptiness, arrows and outlines mean, as far as they are seen. */
export function legendOf([run, other], present) {
  const patches = run.categories.flatMap((category, c) => (present.has(c) ? [categoryPatch(category, c)] : []));
  patches.push(element("span", {}, element("i", { "data-category": "idle" }), "idle: empty"));
  if (hidesSome(run)) patches.push(element("span", { class: "labkit-exposed" }, element("b", {}, "!"), " exposed"));
  if (run.flow_from.length) patches.push(element("span", {}, element("b", {}, "↗"), " message"));
  if (other) {
    const words = `${other.name}; ratio: busy time, ${run.name} / ${other.name}`;
    patches.push(element("span", { class: "labkit-dashed" }, element("i"), words));
  }
  return patches;
}

function showSwitch(place, isOn, isThere) {
  place.setAttribute("aria-pressed", String(isOn));
  place.hidden = !isThere;
}

/** Which of the switches there are, and which are pressed. */
export function showButtons(buttons, state, isTableShown) {
  const { runs } = state;
  const [run, other] = runs;
  showSwitch(buttons.arrows, state.arrows, true);
  showSwitch(buttons.path, state.showPath, run.path);
  showSwitch(buttons.outline, state.overlay, other);
  showSwitch(buttons.cluster, asCluster(state), runs.length === 1 && isCluster(run.ranks.size));
  showSwitch(
    buttons.memory,
    state.memory,
    runs.some(({ memory }) => memory.length),
  );
  showSwitch(buttons.table, isTableShown, true);
}
