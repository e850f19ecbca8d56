// What stands around the canvas: buttons, legend, strip, detail, numbers, help, table.

import { areColoured } from "./bare.js";
import { isCluster } from "./cluster.js";
import { button, choice, element } from "./element.js";
import { unsplit } from "./unsplit.js";
import { isForward } from "./forward.js";
import { REGION } from "./kinds.js";
import { lateRanks } from "./last_ranks.js";
import { asCluster, namesOf } from "./layout.js";
import { bytesText } from "./words.js";

const KEYS = [
  ["← →", "previous, next event in the row"],
  ["↑ ↓", "row above, below"],
  ["+ −", "zoom in, out"],
  ["Home", "whole run"],
  ["PgUp PgDn", "earlier, later"],
  ["Enter", "zoom to the event or the measured interval"],
  ["[ ]", "move the cursor to the previous, next edge"],
  ["Space", "play, pause the cursor"],
  ["m", "measure from the cursor"],
  ["c", "critical path"],
  ["o", "outline"],
  ["r", "one row per rank, or all rows"],
  ["s", "a row for each stream, or for each lane (or click a lane's name)"],
  ["n", "names that the colours tell, too"],
  ["y", "memory"],
  ["> <", "taller, shorter rows"],
  ["a", "arrows"],
  ["f", "fold, unfold ranks that do the same (or click their name)"],
  ["t", "table"],
  ["Esc", "clear the selection"],
  ["?", "this help"],
];
const POINTER =
  "Drag to measure (ends snap to events), Shift+drag to move, double-click an event to zoom to it. " +
  "Ctrl or Cmd+wheel zooms, the wheel alone once the picture has the focus; Alt+wheel makes rows taller. Drag the " +
  "strip below to move, its edges to zoom.";
const FORMATS = ["PNG", "SVG", "HTML", "Chrome trace"];

/** Show or hide the keys, which are written when they are first asked for. */
export function toggleHelp({ help, state }) {
  help.hidden = !help.hidden;
  if (help.firstChild) return;
  const known = KEYS.filter(([key]) => key !== "s" || state.runs[0].streams);
  const keys = known.flatMap(([key, what]) => [element("dt", {}, key), element("dd", {}, what)]);
  help.append(element("dl", {}, ...keys), element("p", {}, POINTER));
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
    path: key("Critical path", "c", "the chain of work and messages that decided when the run ended"),
    outline: key("Outline", "o", "second run as an outline over the first, or below it"),
    arrows: key("Arrows", "a", "messages from send to receive"),
    cluster: key("Cluster", "r", "one row per rank: work, and thin beneath it communication"),
    streams: key("Streams", "s", "a row for each stream of a device"),
    spans: key("Spans", "n", "brackets whose names the colours tell, too"),
    memory: key("Memory", "y", "what each rank held in memory over time"),
    table: key("Table", "t", "numbers and events as a table"),
  };
}

/** The button that shows what is seldom wanted, controls and numbers, and hides it again. */
function moreButton(...more) {
  const made = button("More", "more controls, and all numbers", () => {
    for (const part of more) part.hidden = !part.hidden;
    made.setAttribute("aria-expanded", String(!more[0].hidden));
  });
  made.setAttribute("aria-expanded", "false");
  return made;
}

/** Build the view's elements into its root, and return them by name. */
export function buildFrame(root, { press, save }) {
  const key = (label, name, title) => button(label, `${title} (${name})`, () => press(name));
  const isPage = root.tagName === "MAIN"; // of its own, and the title is the page's
  const title = element(isPage ? "h1" : "span", { class: "labkit-title" });
  const source = element("span", { class: "labkit-world" });
  const buttons = switches(key);
  const comparing = element("span", { class: "labkit-compare" });
  const zooms = [key("Fit", "Home", "whole run"), key("−", "-", "zoom out"), key("+", "+", "zoom in")];
  const { path, outline, ...others } = buttons;
  const further = [...Object.values(others), comparing, exportList(save), key("Keys", "?", "what the keys do")];
  const more = element("div", { class: "labkit-head labkit-more", hidden: true }, ...further);
  const zoom = element("span", { class: "labkit-zoom", role: "group", "aria-label": "zoom" }, ...zooms);
  const numbers = element("table", { class: "labkit-numbers", tabindex: "0", "aria-label": "numbers", hidden: true });
  const main = element("span", { class: "labkit-main" }, zoom, path, outline, moreButton(more, numbers));
  const head = element("div", { class: "labkit-head" }, title, source, main);
  const tiles = element("dl", { class: "labkit-tiles" });
  const canvas = element("canvas", { tabindex: "0", role: "application", "aria-roledescription": "timeline" });
  const region = { hidden: true, tabindex: "0", role: "region", "aria-label": "events in view" };
  const parts = {
    legend: element("div", { class: "labkit-legend" }),
    plot: element("div", { class: "labkit-plot" }, canvas),
    strip: element("canvas", { class: "labkit-strip", "aria-hidden": "true" }),
    detail: element("div", { class: "labkit-detail" }),
    notice: element("div", { class: "labkit-notice", role: "status", hidden: true }),
    numbers,
    help: element("div", { class: "labkit-help", hidden: true }),
    table: element("div", { class: "labkit-table", ...region }),
    tip: element("div", { class: "labkit-tip", hidden: true, "aria-hidden": "true" }),
    spoken: element("div", { class: "labkit-spoken", "aria-live": "polite", role: "status" }),
  };
  root.classList.add("labkit-timeline");
  root.append(head, tiles, more, ...Object.values(parts));
  return { title, source, buttons, comparing, canvas, tiles, ...parts };
}

function categoryPatch([name, , , isHatched, isDotted], c) {
  const kind = (isHatched && "labkit-hatched") || (isDotted && "labkit-dotted") || "";
  const patch = element("i", { "data-category": c, class: kind });
  return element("span", { "data-mark": c }, patch, name);
}

/**
 * Categories, and marks that are no bars, as they are seen: what computes, what sends and receives, what stands still,
 * what lies over them. Of a mark its name as painters know it, what it looks like, and what it means; @ is who comes
 * last.
 */
const ENTRIES = [
  [0],
  [1],
  [2],
  [5],
  ["other", "■", "other compute"],
  ["copy", "■", "copy"],
  [8],
  [4],
  [7],
  [3],
  ["hidden", "┅", "called; @ has not called yet"],
  [6],
  ["exposed", "▁", "exposed: no computing hides it"],
  ["message", "↗", "message"],
  ["late", "↑", "held up by @"],
  ["early", "↗", "message that arrives before it left"],
  ["held", "↓", "a stream waited for another until then"],
  ["path", "▭", "critical path"],
  ["clock", "├┤", "how far clocks may be off"],
];
const BACKWARD = 1;

/** ": all_reduce of 6 MB", where all calls of a category are alike. */
function callsOf(runs, c) {
  const [names, sizes] = [new Set(), new Set()];
  for (const { labels, label, bytes } of runs) {
    const which = labels.flatMap(([, , category], k) => (category === c ? [k] : []));
    for (const k of which) names.add(labels[k][0]);
    for (let i = 0; i < label.length && sizes.size < 2; i++) if (which.includes(label[i])) sizes.add(bytes[i]);
  }
  if (names.size !== 1) return "";
  const [size] = sizes;
  return `: ${[...names][0]}${sizes.size === 1 && size > 0 ? ` of ${bytesText(size)}` : ""}`;
}

/** An entry for all that may be drawn: categories, emptiness, and marks over the bars. */
export function legendOf(runs, present) {
  const [run, other] = runs;
  const blue = isForward(run) ? "forward" : "forward, other compute";
  const nameOf = (c) => {
    if (c === 0 && present.has(BACKWARD)) return blue;
    const [name] = run.categories[c];
    if (name === "blocked") return "waits, computes nothing";
    return name === "collective" ? `${name}${callsOf(runs, c)}` : name;
  };
  const patches = ENTRIES.filter(([c, sign]) => sign || present.has(c)).map(([c, sign, words]) => {
    if (!sign) return categoryPatch([nameOf(c), ...run.categories[c].slice(1)], c);
    const late = lateRanks(run);
    const who = c === "hidden" && late.length > 1 ? "the last rank" : namesOf(late);
    return element("span", { "data-mark": c, hidden: true }, element("b", {}, sign), ` ${words.replace("@", who)}`);
  });
  if (other) {
    const words = `${other.name}; ratio: busy time, ${run.name} / ${other.name}`;
    patches.push(element("span", { class: "labkit-dashed" }, element("i"), words));
  }
  return patches;
}

/** Show those entries of the legend whose marks were drawn, and no other. */
export function showLegend(legend, { marks }) {
  for (const entry of legend.querySelectorAll("[data-mark]")) entry.hidden = !marks.has(entry.dataset.mark);
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
  showSwitch(buttons.cluster, asCluster(state), runs.length > 1 || isCluster(run.ranks.size));
  showSwitch(buttons.streams, run !== unsplit(run), run.streams && !other);
  showSwitch(
    buttons.spans,
    state.spans,
    runs.some((each) => each.rows.some(({ lane }) => lane === REGION) && areColoured(each)),
  );
  showSwitch(
    buttons.memory,
    state.memory,
    runs.some(({ memory }) => memory.length),
  );
  showSwitch(buttons.table, isTableShown, true);
}
