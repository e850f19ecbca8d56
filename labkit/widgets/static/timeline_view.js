// The widget: what stands around the canvas, pointer, wheel and keys, and what is said aloud.

const KEYS = [
  ["← →", "previous, next event of the row"], ["↑ ↓", "row above, below"], ["+ −", "zoom in, out"],
  ["Home", "whole run"], ["PgUp PgDn", "earlier, later"], ["Enter", "zoom to the event or the measured interval"],
  ["[ ]", "cursor to the previous, next edge of any event"], ["Space", "let the cursor run, stop it"], ["m", "measure from the cursor on"],
  ["c", "critical path"], ["o", "outline"], ["a", "arrows"], ["t", "table"], ["Esc", "clear marks"], ["?", "these keys"],
];
const POINTER = "Drag to measure (ends snap to edges of events), Shift+drag to move, double click to zoom to an event, " +
  "Ctrl or Cmd+wheel (in the focused picture the wheel alone) to zoom; drag the strip below to move, its edges to zoom.";

// Field, label, what it is, how its value is written, and what is written after it.
const NUMBERS = [
  ["window", "length", "time in view", timeText],
  ["busyShare", "busy", "share of the ranks' time in which they compute or communicate", percentText],
  ["computeShare", "computing", "share of the ranks' time with a span in the compute row", percentText],
  ["bubble", "bubble", "share of the ranks' time without computation", percentText],
  ["communication", "communication", "time in communication, all ranks together", timeText],
  ["exposed", "exposed communication", "communication while the same rank does not compute", timeText, (n) => `, ${percentText(n.exposedShare)}`],
  ["sent", "sent", "bytes of sends, and of the arguments of remote calls, that begin in view", bytesText, (n) => ` in ${countText(n.messages, "message")}`],
  ["payload", "collectives", "payload of the calls that begin in view, as nccl-tests counts it", bytesText, (n) => ` in ${countText(n.calls, "call")}`],
  ["busbw", "busbw", "bus bandwidth of the collectives that begin in view, mean over their time", (speed) => (Number.isFinite(speed) ? `${bytesText(speed)}/s` : "–")],
];

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== false) made.setAttribute(key, value === true ? "" : value);
  made.append(...children);
  return made;
}

/** Return the two parts of a table. */
const tableOf = (heads, rows) => [element("thead", {}, element("tr", {}, ...heads.map((head) => (head ? element("th", { scope: "col" }, head) : element("td"))))), element("tbody", {}, ...rows)];

/** Return whether the page around the element is dark. */
function isDark(root) {
  const told = document.body.dataset.jpThemeLight;
  if (told) return told === "false";
  for (let at = root.parentElement; at; at = at.parentElement) {
    const [r, g, b, alpha] = (getComputedStyle(at).backgroundColor.match(/[\d.]+/g) ?? []).map(Number);
    if (b !== undefined && alpha !== 0) return 0.3 * r + 0.6 * g + 0.1 * b < 110;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Return the colours of the style sheet in force, and those of the categories. */
function themeOf(root, dark, categories) {
  const style = getComputedStyle(root), colours = categories.map((category) => category[dark ? 2 : 1]), theme = { colours };
  for (const name of ["paper", "band", "ink", "quiet", "grid", "arrow", "memory", "path", "alarm", "selection"]) theme[name] = style.getPropertyValue(`--${name}`).trim();
  const bright = (hex) => [0.299, 0.587, 0.114].reduce((sum, weight, i) => sum + weight * parseInt(hex.slice(1 + 2 * i, 3 + 2 * i), 16), 0);
  theme.onBar = colours.map((colour) => (bright(colour) > 110 ? "#000000" : "#ffffff"));
  return theme;
}

export class TimelineView {
  constructor(root, { runs, source = "", style = "" }) {
    this.root = root;
    this.code = { source, style };
    this.state = {
      runs: [], view: [0, 1], whole: [0, 1], offset: 0, ratio: 1, width: 0, overlay: false, arrows: true, showPath: false,
      focus: null, measured: null, cursor: null, from: null, widths: new Map(), hatched: [],
    };
    this.frames = 0;
    this.build();
    this.setRuns(runs);
    this.watch();
  }

  build() {
    const button = (label, key, title) => {
      const made = element("button", { type: "button", title: `${title} (${key})` }, label);
      made.addEventListener("click", () => this.press(key));
      return made;
    };
    this.choice = (label, words, choose) => {
      const made = element("select", { "aria-label": label }, ...words.map((word) => element("option", {}, word)));
      made.addEventListener("change", () => choose(made.value));
      return made;
    };
    this.title = element("span", { class: "labkit-title" });
    this.buttons = {
      arrows: button("Arrows", "a", "messages from send to receive"),
      path: button("Critical path", "c", "the chain of work and messages that decided when the run ended"),
      outline: button("Outline", "o", "second run as an outline over the first, or below it"),
      table: button("Table", "t", "numbers and events in view as a table"),
    };
    this.exports = this.choice("Export", ["Export", "PNG", "SVG", "HTML", "Chrome trace"], (kind) => {
      this.exports.selectedIndex = 0;
      this.export(kind);
    });
    this.comparing = element("span", { class: "labkit-compare" });
    const head = element("div", { class: "labkit-head" }, this.title,
      button("Fit", "Home", "whole run"), button("−", "-", "zoom out"), button("+", "+", "zoom in"),
      this.buttons.arrows, this.buttons.path, this.buttons.outline, this.comparing, this.buttons.table, this.exports, button("?", "?", "keys"));
    this.canvas = element("canvas", { tabindex: "0", role: "application", "aria-roledescription": "timeline" });
    this.plot = element("div", { class: "labkit-plot" }, this.canvas);
    this.strip = element("canvas", { class: "labkit-strip", "aria-hidden": "true" });
    this.numbers = element("table", { class: "labkit-numbers", tabindex: "0", "aria-label": "numbers" });
    this.detail = element("div", { class: "labkit-detail" });
    this.spoken = element("div", { class: "labkit-spoken", "aria-live": "polite", role: "status" });
    this.legend = element("div", { class: "labkit-legend" });
    this.help = element("div", { class: "labkit-help", hidden: true },
      element("dl", {}, ...KEYS.flatMap(([key, what]) => [element("dt", {}, key), element("dd", {}, what)])), element("p", {}, POINTER));
    this.table = element("div", { class: "labkit-table", hidden: true, tabindex: "0", role: "region", "aria-label": "events in view" });
    this.root.classList.add("labkit-timeline");
    this.root.append(head, this.legend, this.plot, this.strip, this.detail, this.numbers, this.help, this.table, this.spoken);
    this.root.labkit = this;
  }

  /** Show these packed runs: one, or a second beside it. */
  setRuns(packed) {
    this.packed = packed;
    this.shape = this.incoming = this.numbersOf = null;
    this.sequence = packed[0].sequence ?? 0;
    if (this.state.runs[0]?.start.length !== packed[0].layout.start[2]) this.state.focus = null;
    this.take(packed.map((each) => {
      const run = decode(each);
      run.held = new Map(run.memory.map((rank) => {
        const time = run[`memory_time_${rank}`], held = run[`memory_held_${rank}`], most = held.reduce((a, b) => Math.max(a, b), 0);
        return [rank, { time, held, most, peak: time[held.indexOf(most)] }];
      }));
      const errors = new Map(run.clock);
      run.errorOf = (rank) => errors.get(rank) ?? 0;
      run.path = each.path && unpack(each.path);
      return run;
    }));
  }

  /** Take what was recorded since, for the next frame; where a part was lost on its way, wait for the next whole state. */
  append(more) {
    if (more.sequence !== this.sequence + 1) return;
    this.sequence = more.sequence;
    const part = decode(more);
    this.incoming = this.incoming ? merge(this.incoming, part) : part;
    this.invalidate();
  }

  /** Add what came in since the last frame; the event in focus is found again. */
  grow() {
    const { state, incoming } = this, [run] = state.runs, at = state.focus?.event;
    const row = rowOf(run, at), start = run.start[at], end = run.end[at];
    this.incoming = null;
    this.take([merge(run, incoming)]);
    if (!row) return;
    const [grown] = state.runs, mine = twinOf(grown, row);
    let event = lowerBound(grown.start, mine.first, mine.last, start);
    while (grown.end[event] !== end) event++;
    state.focus = { run: 0, event };
  }

  /** Show these runs; the view stays where it is, unless it showed the whole. */
  take(runs) {
    const { state } = this, before = state.runs.length, followed = state.view[0] === state.whole[0] && state.view[1] === state.whole[1];
    state.runs = runs;
    const [run, other] = runs;
    if (before !== runs.length) state.overlay = Boolean(other && run.overlay);
    state.hatched = run.categories.map((category) => category[3]);
    this.title.textContent = runs.map(({ name, title, source }) => [name, title, source].filter(Boolean).join(" · ")).join(" | ");
    state.summary = runs.map((each) => named(each, each.summary, ": ")).join(" ");
    this.canvas.setAttribute("aria-label", `${state.summary} Press ? for keys.`);
    if (!before) this.buildCompare(other);
    if (this.detail.textContent === (this.said ?? "")) this.detail.textContent = this.said = runs.flatMap((each) => (each.says ? [named(each, each.says, ": ")] : [])).join(" ");
    this.fit();
    if (!before || followed) state.view = [...state.whole];
    const present = new Set(runs.flatMap((each) => [...each.owned])), shape = `${[...present]} ${runs.map((each) => each.rows.length)} ${run.flow_from.length > 0}`;
    if (this.shape === shape) {
      state.layout = layOut(runs, state.overlay); // the same rows of pixels, with other events
      return this.invalidate();
    }
    this.shape = shape;
    this.legend.replaceChildren(...run.categories.flatMap((category, c) =>
      present.has(c) ? [element("span", {}, element("i", { "data-category": c, class: category[3] ? "labkit-hatched" : "" }), category[0])] : []),
      element("span", {}, element("i", { "data-category": "idle" }), "idle: empty"), ...(run.flow_from.length ? [element("span", {}, element("b", {}, "↗"), " message")] : []),
      ...(other ? [element("span", { class: "labkit-dashed" }, element("i"), `${other.name}; ratio: busy time, ${run.name} / ${other.name}`)] : []));
    this.retheme();
    return this.resize();
  }

  fit() {
    const { state } = this, [run, other] = state.runs;
    state.whole = [Math.min(0, other ? state.offset : 0), Math.max(run.span, other ? other.span + state.offset : 0, 1)];
  }

  buildCompare(other) {
    if (!other) return;
    const [unit, size] = unitOf(this.state.runs[0].span);
    this.offsetBox = element("input", { type: "number", step: "any", value: String(this.state.offset / size), "aria-label": `offset of ${other.name} in ${unit}` });
    this.offsetBox.addEventListener("change", () => this.setOffset(Number(this.offsetBox.value) * size));
    const align = this.choice("align the runs at", ["begin", "end", "event in focus"], (at) => this.align(at));
    this.comparing.append("align ", align, " offset ", this.offsetBox, ` ${unit}`);
    this.unit = size;
  }

  setOffset(offset) {
    if (!Number.isFinite(offset)) return;
    const { state } = this, followed = String(state.view) === String(state.whole);
    state.offset = Math.round(offset);
    this.offsetBox.value = String(Number((offset / this.unit).toPrecision(6)));
    this.fit();
    this.show(...(followed ? state.whole : state.view));
  }

  /** Shift the second run so that both begin, end, or the event in focus begins, at the same time. */
  align(at) {
    const { runs: [run, other], focus } = this.state;
    if (at === "begin") return this.setOffset(0);
    if (at === "end") return this.setOffset(run.span - other.span);
    if (!focus || focus.run !== 0) return this.say("First choose an event of the first run, with the mouse or the arrow keys.");
    const [name] = run.labels[run.label[focus.event]], row = rowOf(run, focus.event);
    const same = (of, { first, last }) => [...Array(last - first).keys()].map((i) => first + i).filter((i) => of.labels[of.label[i]][0] === name);
    const theirs = twinOf(other, row);
    const twin = theirs && same(other, theirs)[same(run, row).indexOf(focus.event)];
    if (twin === undefined) return this.say(`The second run has no such ${name} on rank ${row.rank}.`);
    return this.setOffset(run.start[focus.event] - other.start[twin]);
  }

  retheme() {
    const dark = isDark(this.root);
    this.root.dataset.theme = dark ? "dark" : "light";
    this.state.theme = themeOf(this.root, dark, this.state.runs[0].categories);
    for (const patch of this.legend.querySelectorAll("i")) patch.style.setProperty("--colour", this.state.theme.colours[patch.dataset.category] ?? this.state.theme.band);
    this.invalidate();
  }

  resize() {
    const { state } = this;
    state.ratio = window.devicePixelRatio || 1;
    state.width = Math.max(Math.floor(this.plot.clientWidth) || 900, 240);
    state.layout = layOut(state.runs, state.overlay);
    this.root.dataset.outline = String(state.overlay);
    for (const [canvas, height] of [[this.canvas, state.layout.height], [this.strip, STRIP]]) {
      canvas.width = Math.round(state.width * state.ratio);
      canvas.height = Math.round(height * state.ratio);
      canvas.style.width = `${state.width}px`;
      canvas.style.height = `${height}px`;
    }
    this.invalidate();
  }

  invalidate() {
    this.pending ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.pending = null;
    if (!this.state.layout) return;
    if (!this.state.theme.paper) return this.retheme(); // not in the page yet: at the next frame
    if (this.incoming) this.grow();
    const begin = performance.now();
    paint(this.canvas.getContext("2d"), this.state);
    paintOverview(this.strip.getContext("2d"), this.state);
    this.writeNumbers();
    const [run, other] = this.state.runs;
    for (const [name, on, there] of [["arrows", this.state.arrows, true], ["path", this.state.showPath, run.path], ["outline", this.state.overlay, other], ["table", !this.table.hidden, true]]) {
      this.buttons[name].setAttribute("aria-pressed", String(on));
      this.buttons[name].hidden = !there;
    }
    if (!this.table.hidden) this.writeTable();
    this.paintMs = performance.now() - begin;
    this.root.dataset.painted = String(++this.frames);
  }

  writeNumbers() {
    const { runs } = this.state, beside = runs.length > 1, key = runs.map((run) => run.start.length).join();
    const of = (run, t0, t1) => ({ ...numbers(run, t0, t1), ...(beside && categoryTimes(run, t0, t1)) });
    if (this.numbersOf !== key) {
      this.numbersOf = key;
      this.wholes = runs.map((run) => of(run, 0, Math.max(run.span, 1)));
      const names = runs.map(({ name }) => name), heads = beside ? [...names, "difference", ...names.map((name) => `whole: ${name}`)] : ["in view", "whole run"];
      const categories = runs[0].categories.flatMap(([category], c) => (beside && runs.some(({ owned }) => owned.has(c)) ? [[c, `time in ${category}`, "all ranks together", timeText]] : []));
      this.rows = [...NUMBERS, ...categories].map(([name, label, title, ...texts]) => {
        const cells = heads.map(() => element("td"));
        return { name, texts, cells, row: element("tr", { "data-number": name }, element("th", { scope: "row", title }, label), ...cells) };
      });
      this.numbers.replaceChildren(...tableOf(["", ...heads], this.rows.map(({ row }) => row)));
    }
    const here = runs.map((run, r) => of(run, ...ownWindow(this.state, r)));
    for (const { name, texts: [text, after = () => ""], cells } of this.rows) {
      const shown = [...here, ...this.wholes].map((n) => text(n[name]) + after(n));
      if (beside) shown.splice(2, 0, difference(text, here[1][name] - here[0][name]));
      shown.forEach((words, i) => (cells[i].textContent = words));
    }
    this.root.dataset.numbers = JSON.stringify(here[0]);
  }

  describe(run, event) {
    const of = this.state.runs[run], [name, kind, , peer, source, code] = of.labels[of.label[event]];
    const row = rowOf(of, event);
    const parts = [named(of, `rank ${row.rank}`), kind === name || kind === "span" ? name : `${name} (${kind})`, `${timeText(of.end[event] - of.start[event])} from ${timeText(of.start[event])}`];
    if (peer >= 0) parts.push(/recv|serve/.test(kind) ? `from rank ${peer}` : `to rank ${peer}`);
    if (of.bytes[event] && row.lane) parts.push(bytesText(of.bytes[event]));
    const error = of.errorOf(row.rank);
    if (error) parts.push(`clock ± ${timeText(error)}`);
    for (const f of of.flowsOf.get(event) ?? []) {
      const [from, to] = [of.flow_from[f], of.flow_to[f]];
      parts.push(event === from ? `received until ${timeText(of.end[to])}` : `sent at ${timeText(of.start[from])}`);
    }
    return { text: parts.join(", "), source, code };
  }

  showDetail(run, event, aloud) {
    const { text, source, code } = this.describe(run, event);
    const link = element("button", { type: "button", class: "labkit-source", title: "go to this line" }, source);
    link.addEventListener("click", () => goToLine(source, this.root.closest(".jp-Notebook") ?? document) || this.say(`${source} is not in view in this notebook: scroll to it by hand.`));
    this.detail.replaceChildren(text, ...(source ? [" · ", /^Cell/.test(source) ? link : source, element("code", {}, code)] : [" · no source line recorded"]));
    if (aloud) this.spoken.textContent = text + (source ? `, ${source}: ${code}` : "");
  }

  say(text) {
    this.detail.textContent = this.spoken.textContent = text;
  }

  writeTable() {
    const { runs } = this.state, most = 200 / runs.length, heads = ["rank", "event", "kind", "begin", "length", "bytes", "peer", "line"];
    let more = false;
    const rows = runs.flatMap((run, r) => {
      const [t0, t1] = windowOf(this.state, r), found = [];
      for (const row of run.rows)
        for (let i = row.first; i < row.last && found.length <= most && run.start[i] < t1; i++) {
          if (run.end[i] <= t0) continue;
          const [name, kind, , peer, source] = run.labels[run.label[i]];
          found.push([named(run, row.rank), name, kind, timeText(run.start[i]), timeText(run.end[i] - run.start[i]), run.bytes[i] ? bytesText(run.bytes[i]) : "", peer >= 0 ? peer : "", source]);
        }
      more ||= found.length > most;
      return found.slice(0, most);
    });
    const events = countText(rows.length, "event"), caption = more ? `The first ${events} in view; zoom in for the others.` : runs.some((run) => run.span) ? `${events} in view.` : this.said;
    const shown = rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, String(cell)))));
    this.table.replaceChildren(element("table", {}, element("caption", {}, caption), ...tableOf(heads, shown)));
  }

  zoom(factor, at = 0.5) {
    const [a, b] = this.state.view, [low, high] = this.state.whole;
    const length = Math.min(Math.max((b - a) * factor, 1), (high - low) * 1.02), middle = a + (b - a) * at;
    this.show(middle - length * at, middle + length * (1 - at));
  }

  show(a, b) {
    const [low, high] = this.state.whole, slack = 0.01 * (high - low), length = b - a;
    if (a < low - slack) [a, b] = [low - slack, low - slack + length];
    if (b > high + slack) [a, b] = [Math.max(high + slack - length, low - slack), high + slack];
    this.state.view = [a, b];
    this.invalidate();
  }

  pan(share) {
    const [a, b] = this.state.view;
    this.show(a + share * (b - a), b + share * (b - a));
  }
}

/** Return a change in words, in the unit of the two numbers; of shares in points. */
function difference(text, change) {
  const sign = change > 0 ? "+" : change < 0 ? "−" : "", size = Math.abs(change);
  return Number.isFinite(size) && text === percentText ? `${sign}${(100 * size).toFixed(1)} points` : sign + text(size);
}

/** Bring "Cell In[5], line 3" of this notebook into view; return false where the page does not hold it just now. */
function goToLine(source, page) {
  const [, count, line] = /In\[(\d+)\], line (\d+)/.exec(source) ?? [];
  const prompt = [...page.querySelectorAll(".jp-InputPrompt")].find((each) => each.textContent.trim() === `[${count}]:`);
  const at = prompt?.closest(".jp-Cell")?.querySelectorAll(".cm-line")[line - 1];
  if (!at) return false;
  at.scrollIntoView({ block: "center" });
  at.classList.add("labkit-here");
  setTimeout(() => at.classList.remove("labkit-here"), 2500);
  return true;
}
