// The timeline's view: one or two runs on a canvas, what stands around it, and what its reader does with it.

import { causeOf } from "./cause.js";
import { decode } from "./columns.js";
import { align, buildComparing, isLow, roomOf, setOffset, tellRoom } from "./comparing.js";
import { rowOf, twinOf } from "./complete.js";
import { describe, hover, showDetail } from "./details.js";
import { draw } from "./drawing.js";
import { fold, stretch, unfoldFor } from "./folding.js";
import { buildFrame, legendOf } from "./frame.js";
import { pressKey } from "./keys.js";
import { STRIP, isZoomed, layOut, placeOf } from "./layout.js";
import { merge } from "./merge.js";
import { openAt, setCursor, setFocus } from "./moving.js";
import { NumberTable } from "./number_table.js";
import { eventUnder } from "./pointer.js";
import { save } from "./saving.js";
import { lowerBound } from "./search.js";
import { foldedWords, settleStreams } from "./streams.js";
import { addPath, emptyState, holdsUnequally, runOf } from "./state.js";
import { dress } from "./theme.js";
import { shownEvent, unsplit } from "./unsplit.js";
import { Watch } from "./watch.js";
import { unbroken } from "./element.js";
import { named, titleOf } from "./words.js";

const SLACK = 0.01; // of the whole, by which the view may go beyond it
const NARROWEST = 240;
const WIDEST_UNSEEN = 900; // pixels, of a view that has no width yet

const MOST_ENLARGED = 4; // pixels of a canvas for one that it is laid out with

/** By how much a page around enlarges a view, as a slide does: it would be blurred without as many pixels. */
function enlargedBy(root) {
  const factor = root.getBoundingClientRect().width / root.offsetWidth;
  return factor > 1.02 ? Math.min(factor, MOST_ENLARGED) : 1;
}

export class TimelineView {
  constructor(root, { runs, source = "", style = "" }) {
    this.root = root;
    this.code = { source, style };
    this.state = emptyState();
    this.frames = 0;
    this.playing = null;
    const parts = buildFrame(root, { press: (key) => this.press(key), save: (format) => this.export(format) });
    Object.assign(this, parts);
    this.numberTable = new NumberTable(this.numbers);
    root.labkit = this;
    this.setRuns(runs);
    this.watch = new Watch(this);
  }

  // ---- runs ----

  /** Show these packed runs: one, or a second beside it. */
  setRuns(packed) {
    const { state } = this;
    this.packed = packed;
    this.shape = null;
    this.incoming = null;
    this.numberTable.key = null;
    this.sequence = packed[0].sequence ?? 0;
    if (state.runs[0]?.start.length !== packed[0].layout.start[2]) state.focus = null;
    this.take(packed.map(runOf));
  }

  /** Take the critical paths of the runs that are shown, which come after these. */
  takePaths(paths) {
    this.packed = this.packed.map((run, k) => ({ ...run, path: paths[k] }));
    this.state.runs.forEach((run, k) => addPath(unsplit(run), paths[k]));
    this.invalidate();
  }

  /** Take what was recorded since, for the next frame; where a part was lost on its way, wait for the next whole. */
  append(more) {
    if (more.sequence !== this.sequence + 1) return;
    this.sequence = more.sequence;
    const part = decode(more);
    this.incoming = this.incoming ? merge(this.incoming, part) : part;
    this.invalidate();
  }

  /** Add what came in since the last frame; the event in focus is found again. */
  grow() {
    const { state, incoming } = this;
    const [run] = state.runs;
    const at = state.focus?.event;
    const row = rowOf(run, at);
    this.incoming = null;
    this.take([merge(run, incoming)]);
    if (!row) return;
    const [grown] = state.runs;
    const { first, last } = twinOf(grown, row);
    let event = lowerBound(grown.start, first, last, run.start[at]);
    while (grown.end[event] !== run.end[at]) event++;
    state.focus = { run: 0, event };
  }

  /** Show these runs; the view stays where it is, unless it showed the whole. */
  take(runs) {
    const { state } = this;
    const [run, other] = runs;
    const before = state.runs.length;
    const isFollowed = !isZoomed(state);
    state.runs = runs;
    [state.lit, this.over] = [new Set(), undefined]; // events have other numbers now
    [state.hatched, state.dotted] = [3, 4].map((at) => run.categories.map((category) => category[at]));
    if (!before) state.memory = !other && holdsUnequally(run); // of others messages cross it
    if (before !== runs.length) state.overlay = Boolean(other && run.overlay);
    this.writeWords(runs);
    if (!before && other) buildComparing(this, other);
    this.fit();
    if (!before || isFollowed) state.view = [...state.whole];
    this.reshape(runs);
  }

  /** Title, summary and what is said of the runs. */
  writeWords(runs) {
    this.title.replaceChildren(...unbroken(titleOf(runs, runs.length > 1 ? causeOf(...runs) : "")));
    this.source.textContent = [...new Set(runs.map(({ source }) => source))].join(", ");
    this.state.summary = runs.map((run) => named(run, run.summary, ": ")).join(" ");
    this.canvas.setAttribute("aria-label", `${this.state.summary} Press ? for keys.`);
    if (this.detail.textContent !== (this.said ?? "")) return; // it tells of an event
    const said = runs.filter(({ says }) => says).map((run) => named(run, run.says, ": "));
    this.said = [...said, foldedWords(this.state)].filter(Boolean).join(" ");
    this.detail.textContent = this.said;
  }

  /** Lay rows out anew, and write the legend anew where other things are seen than before. */
  reshape(runs) {
    const present = new Set(runs.flatMap(({ owned }) => [...owned]));
    const rows = runs.map((run) => [run.rows.length, run.title]);
    settleStreams(this);
    const layout = layOut(this.state);
    const shape = `${[...present]} ${rows} ${runs[0].flow_from.length > 0} ${layout.height}`;
    if (this.shape === shape) {
      // The same rows of pixels, with other events.
      this.state.layout = layout;
      this.invalidate();
      return;
    }
    this.shape = shape;
    this.legend.replaceChildren(...legendOf(runs, present));
    this.retheme();
    this.resize();
  }

  // ---- what is in view ----

  /** Where the whole lies: all of both runs. */
  fit() {
    const { state } = this;
    const [run, other] = state.runs;
    const begin = Math.min(0, other ? state.offset : 0);
    state.whole = [begin, Math.max(run.span, other ? other.span + state.offset : 0, 1)];
  }

  /** Bring [a, b] into view; beyond the whole there is little to see. */
  show(a, b) {
    const [low, high] = this.state.whole;
    const slack = SLACK * (high - low);
    const length = b - a;
    let [from, to] = [a, b];
    if (from < low - slack) [from, to] = [low - slack, low - slack + length];
    if (to > high + slack) [from, to] = [Math.max(high + slack - length, low - slack), high + slack];
    this.state.view = [from, to];
    this.invalidate();
  }

  /** Make the view's length `factor` times what it is, around a share of it. */
  zoom(factor, at = 0.5) {
    const [a, b] = this.state.view;
    const [low, high] = this.state.whole;
    const length = Math.min(Math.max((b - a) * factor, 1), (high - low) * (1 + 2 * SLACK));
    const middle = a + (b - a) * at;
    this.show(middle - length * at, middle + length * (1 - at));
  }

  /** Move by a share of the view. */
  pan(share) {
    const [a, b] = this.state.view;
    this.show(a + share * (b - a), b + share * (b - a));
  }

  stretch(factor, y) {
    stretch(this, factor, y);
  }

  /** Scroll the picture so that the row of an event is seen, where there are more rows than it has room for. */
  revealRow(run, event) {
    unfoldFor(this, run, event);
    const place = placeOf(this.state, run, event);
    if (!place) return;
    const { plot } = this;
    const lowest = place.y + place.bar - plot.clientHeight;
    if (plot.scrollTop > place.y || plot.scrollTop < lowest) {
      plot.scrollTop = place.y - plot.clientHeight / 2;
    }
  }

  // ---- painting ----

  /** Take the colours of the page around. */
  retheme() {
    const { state, root } = this;
    state.theme = dress(root, state.runs);
    for (const patch of this.legend.querySelectorAll("i")) {
      patch.style.setProperty("--colour", state.theme.colours[patch.dataset.category] ?? state.theme.band);
    }
    this.invalidate();
  }

  /** Take the width of the page around. */
  resize() {
    const { state, plot } = this;
    state.ratio = (window.devicePixelRatio || 1) * enlargedBy(this.root);
    state.room = roomOf(this.root);
    state.low = isLow(this.root);
    state.width = Math.max(Math.floor(plot.clientWidth) || WIDEST_UNSEEN, NARROWEST);
    settleStreams(this);
    state.layout = layOut(state);
    this.root.dataset.outline = String(state.overlay);
    for (const [canvas, height] of [
      [this.canvas, state.layout.height],
      [this.strip, STRIP],
    ]) {
      canvas.width = Math.round(state.width * state.ratio);
      canvas.height = Math.round(height * state.ratio);
      canvas.style.width = `${state.width}px`;
      canvas.style.height = `${height}px`;
    }
    tellRoom(this);
    this.invalidate();
  }

  /** Draw at the next frame. */
  invalidate() {
    this.pending ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    draw(this);
  }

  /** Say below the picture and aloud. */
  say(text) {
    this.detail.textContent = text;
    this.spoken.textContent = text;
  }

  // ---- what a reader does ----

  press(key) {
    pressKey(this, key);
  }

  export = (format) => save(this, format);

  fold() {
    fold(this);
  }

  setOffset = (offset) => setOffset(this, offset);

  align = (at) => align(this, at);

  setFocus(run, event) {
    setFocus(this, run, event);
  }

  openAt(run, event) {
    openAt(this, run, shownEvent(this.state.runs[run], event));
  }

  setCursor(time) {
    setCursor(this, time);
  }

  describe = (run, event) => describe(this.state.runs[run], event);

  showDetail(run, event, aloud) {
    showDetail(this, run, event, aloud);
  }

  under = (event) => eventUnder(this.state, event);

  hover(found, at) {
    hover(this, found, at);
  }

  /** Let go of everything: a page may hold what it showed for long. */
  end() {
    this.watch.end();
    for (const frame of [this.pending, this.playing]) cancelAnimationFrame(frame);
    Object.assign(this, { packed: null, state: null, playing: null });
  }
}
