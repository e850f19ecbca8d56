// Pointer, wheel and keys of the timeline, and the module's face towards anywidget.

const isPlain = (event) => !event.ctrlKey && !event.metaKey && !event.altKey && !(event.shiftKey && event.key === "Enter");

Object.assign(TimelineView.prototype, {
  watch() {
    const { canvas, strip, root } = this;
    const on = (target, types, listener) => types.split(" ").forEach((type) => target.addEventListener(type, listener, { passive: false }));
    on(canvas, "keydown", (event) => this.key(event));
    // A plain key pressed in the widget is no shortcut of the notebook around it; Ctrl+S and Shift+Enter still are.
    on(root, "keydown", (event) => isPlain(event) && event.stopPropagation());
    on(canvas, "wheel", (event) => this.wheel(event));
    on(canvas, "pointermove", (event) => this.move(event));
    on(canvas, "pointerleave", () => this.hover(null));
    on(canvas, "pointerdown", (event) => this.down(event));
    on(canvas, "pointerup pointercancel", () => (this.drag = null));
    on(canvas, "dblclick", () => this.press("Enter"));
    on(strip, "pointerdown", (event) => this.stripDown(event));
    on(strip, "pointermove", (event) => this.stripMove(event));
    on(strip, "pointerup pointercancel", () => (this.stripDrag = null));
    this.observers = [new ResizeObserver(() => this.plot.clientWidth && Math.floor(this.plot.clientWidth) !== this.state.width && this.resize()), new MutationObserver(() => this.retheme())];
    this.observers[0].observe(root);
    this.observers[1].observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
    this.gone = new AbortController();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.retheme(), { signal: this.gone.signal });
    this.watchPixels();
  },

  /** Paint anew where the page comes to a screen with other pixels: the width in CSS pixels may stay. */
  watchPixels() {
    const again = () => (this.resize(), this.watchPixels());
    matchMedia(`(resolution: ${devicePixelRatio}dppx)`).addEventListener("change", again, { once: true, signal: this.gone.signal });
  },

  end() {
    for (const observer of this.observers) observer.disconnect();
    this.gone.abort();
    for (const frame of [this.pending, this.playing]) cancelAnimationFrame(frame);
    this.packed = this.state = this.playing = null; // a page may hold what it showed for long: let the columns go
  },

  key(event) {
    if (/^(Tab|F\d+)$/.test(event.key) || !isPlain(event)) return; // F5 and F12 are the browser's
    event.preventDefault();
    this.press(event.key);
  },

  /** Do what a key says. */
  press(key) {
    const { state } = this;
    const edge = (direction) => this.setCursor(nextEdge(state, state.cursor ?? state.view[0], direction));
    const keys = {
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), ArrowUp: () => this.stepRow(-1), ArrowDown: () => this.stepRow(1),
      "+": () => this.zoom(1 / 1.6, this.anchor()), "-": () => this.zoom(1.6, this.anchor()), Home: () => this.show(...state.whole),
      PageUp: () => this.pan(-0.5), PageDown: () => this.pan(0.5), Enter: () => this.zoomToMark(), "[": () => edge(-1), "]": () => edge(1), " ": () => this.play(),
      m: () => this.measureFrom(), c: () => this.togglePath(), a: () => this.toggleArrows(), o: () => this.toggleOutline(), t: () => (this.table.hidden = !this.table.hidden), "?": () => (this.help.hidden = !this.help.hidden),
      Escape: () => Object.assign(state, { focus: null, measured: null, cursor: null, from: null }),
    };
    keys[{ "=": "+", _: "-" }[key] ?? key]?.();
    this.invalidate();
  },

  anchor() {
    const { focus, runs, view, cursor } = this.state, time = cursor ?? (focus ? (runs[focus.run].start[focus.event] + runs[focus.run].end[focus.event]) / 2 : NaN);
    const share = (time - view[0]) / (view[1] - view[0]);
    return share > 0 && share < 1 ? share : 0.5;
  },

  zoomToMark() {
    const { focus, measured, runs } = this.state;
    const [a, b] = measured ?? (focus ? [runs[focus.run].start[focus.event], runs[focus.run].end[focus.event]] : this.state.whole);
    if (b > a) this.show(a - 0.1 * (b - a), b + 0.1 * (b - a));
  },

  /** Select an event and show it with what lies around it: it fills a third of the view. */
  openAt(run, event) {
    const { start, end } = this.state.runs[run], long = Math.max(end[event] - start[event], (this.state.whole[1] - this.state.whole[0]) / 1000);
    this.setFocus(run, event);
    this.show(start[event] - long, end[event] + long);
  },

  toggleArrows() {
    const { state } = this;
    state.arrows = !state.arrows;
    this.say(!state.arrows ? "Arrows off." : state.crowded ? "Too many messages in view: arrows of the event in focus only; zoom in for all." : "Arrows on.");
  },

  toggleOutline() {
    Object.assign(this.state, { overlay: this.state.runs.length > 1 && !this.state.overlay, focus: null });
    this.resize();
  },

  togglePath() {
    const { runs } = this.state;
    if (!runs[0].path) return this.say("The critical path is not there yet.");
    this.state.showPath = !this.state.showPath;
    return this.say(this.state.showPath ? runs.map((run) => named(run, run.path.text, ": ")).join(" ") : "Critical path off.");
  },

  setFocus(run, event) {
    const { state } = this, of = state.runs[run], shift = shiftOf(state, run);
    state.focus = { run, event };
    const [a, b] = state.view, begin = of.start[event] + shift, end = of.end[event] + shift;
    if (begin > b || end < a) this.show(begin - (b - a) / 3, begin + ((b - a) * 2) / 3);
    this.showDetail(run, event, true);
    this.invalidate();
  },

  /** Go to the previous or next event of the row in focus; at first to the first one in view. */
  step(direction) {
    const { focus } = this.state;
    if (!focus) return this.stepRow(0);
    const place = placeOf(this.state, focus.run, focus.event);
    const next = focus.event + direction;
    if (next >= place.row.first && next < place.row.last) this.setFocus(focus.run, next);
    else this.say(`That was the ${direction > 0 ? "last" : "first"} event of this row of rank ${place.row.rank}, of ${place.row.last - place.row.first}.`);
  },

  stepRow(direction) {
    const { focus, layout, runs } = this.state, { rows } = layout;
    const here = focus ? rows.indexOf(placeOf(this.state, focus.run, focus.event)) : -1;
    const at = focus ? runs[focus.run].start[focus.event] : this.state.view[0];
    for (let i = focus ? here + direction : 0; i >= 0 && i < rows.length; i += direction || 1) {
      const { run, row } = rows[i];
      if (row.first === row.last) continue;
      const event = Math.min(lowerBound(runs[run].start, row.first, row.last, at), row.last - 1);
      return this.setFocus(run, event);
    }
    return undefined;
  },

  setCursor(time) {
    const { state } = this, [a, b] = state.view, length = b - a;
    state.cursor = time;
    if (time < a || time > b) this.show(time - length / 4, time + (length * 3) / 4);
    const doing = state.runs.flatMap((run, r) => run.rows.flatMap((row) => {
      const event = hit(run, row, time - shiftOf(state, r));
      return event < 0 ? [] : [named(run, `rank ${row.rank}: ${run.labels[run.label[event]][0]}`)];
    }));
    if (state.from !== null) return this.measure(state.from, time);
    const text = `${timeText(time)}: ${doing.slice(0, 12).join(", ") || "all idle"}${doing.length > 12 ? ", ..." : ""}`;
    this.detail.textContent = text;
    if (!this.playing) this.spoken.textContent = text;
    return this.invalidate();
  },

  /** Measure from the cursor to wherever it goes next. */
  measureFrom() {
    this.state.from = this.state.cursor;
    this.say(this.state.from === null ? "First put the cursor somewhere, with [ or ]." : `Measuring from ${timeText(this.state.from)}: move the cursor.`);
  },

  measure(...ends) {
    const { state } = this, [a, b] = (state.measured = ends.sort((p, q) => p - q));
    const busy = state.runs.map((run, r) => named(run, percentText(numbers(run, a - shiftOf(state, r), b - shiftOf(state, r)).busyShare)));
    this.say(`Measured: ${timeText(b - a)}, from ${timeText(a)} to ${timeText(b)}; ranks busy ${busy.join(", ")}.`);
    this.invalidate();
  },

  /** Let the cursor run through what is in view in six seconds; readers who want less motion step it instead. */
  play() {
    if (this.playing) {
      cancelAnimationFrame(this.playing);
      this.playing = null;
      return undefined;
    }
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.say("Your system asks for less motion: step the cursor with [ and ].");
    const [a, b] = this.state.view, from = this.state.cursor === null || this.state.cursor >= b ? a : Math.max(this.state.cursor, a);
    let begin = null;
    const tick = (now) => {
      begin ??= now;
      const time = from + ((b - a) * (now - begin)) / 6000;
      this.playing = time < b ? requestAnimationFrame(tick) : null;
      this.setCursor(Math.min(time, b));
    };
    this.playing = requestAnimationFrame(tick);
    return undefined;
  },

  wheel(event) {
    if (!(event.ctrlKey || event.metaKey || document.activeElement === this.canvas)) return; // else the page scrolls
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) return this.pan((event.deltaX || event.deltaY) / this.state.width);
    const x = event.offsetX;
    return this.zoom(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) * 0.003), Math.max(0, Math.min(1, (x - LEFT) / (this.state.width - LEFT - RIGHT))));
  },

  under(event) {
    const { layout, runs } = this.state, y = event.offsetY;
    const place = layout.rows.find((each) => y >= each.y - 1 && y <= each.y + each.bar + 1);
    if (!place || event.offsetX < LEFT) return null;
    const time = timeOf(this.state, event.offsetX) - shiftOf(this.state, place.run);
    const found = hit(runs[place.run], place.row, time, 3 * pixelOf(this.state));
    return found < 0 ? null : { run: place.run, event: found };
  },

  hover(found) {
    this.canvas.style.cursor = found ? "pointer" : "crosshair";
    const shown = found ?? this.state.focus;
    if (shown) this.showDetail(shown.run, shown.event, false);
  },

  snapped(x) {
    return snap(this.state, timeOf(this.state, x), 6 * pixelOf(this.state));
  },

  down(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { x: event.offsetX, view: this.state.view, moves: event.shiftKey, began: false };
    const found = this.under(event);
    if (found) this.setFocus(found.run, found.event);
  },

  move(event) {
    const { drag, state } = this;
    if (!drag) return this.hover(this.under(event));
    if (!drag.began && Math.abs(event.offsetX - drag.x) < 4) return undefined;
    drag.began = true;
    if (drag.moves) {
      const by = (drag.x - event.offsetX) * pixelOf(state);
      return this.show(drag.view[0] + by, drag.view[1] + by);
    }
    return this.measure(...[drag.x, Math.max(LEFT, Math.min(event.offsetX, state.width - RIGHT))].map((x) => this.snapped(x)));
  },

  stripDown(event) {
    this.strip.setPointerCapture(event.pointerId);
    const strip = wholeOf(this.state), { view } = this.state, time = timeOf(strip, event.offsetX);
    const edge = view.findIndex((each) => Math.abs(each - time) < 6 * pixelOf(strip));
    if (edge < 0 && (time < view[0] || time > view[1])) this.pan((time - (view[0] + view[1]) / 2) / (view[1] - view[0]));
    this.stripDrag = { time, edge, view: this.state.view };
  },

  stripMove(event) {
    if (!this.stripDrag) return;
    const { time, edge, view } = this.stripDrag, by = timeOf(wholeOf(this.state), event.offsetX) - time;
    const [a, b] = edge < 0 ? [view[0] + by, view[1] + by] : view.map((each, i) => (i === edge ? each + by : each));
    if (b - a > 1) this.show(a, b);
  },
});

function render({ model, el }) {
  const root = document.createElement("div");
  el.append(root);
  const runs = () => model.get("runs").map((run, i) => ({ ...run, path: model.get("paths")[i] }));
  const view = new TimelineView(root, { runs: runs(), source: model.get("_esm"), style: model.get("_css") });
  const update = () => model.get("runs").length && view.setRuns(runs()); // none: it is being closed
  const point = () => {
    const place = model.get("focus"), note = model.get("note");
    if (place >= 0 && place < view.state.runs[0].start.length) view.openAt(0, place);
    if (note) view.detail.prepend(element("b", {}, note), " ");
  };
  const append = (message, [columns]) => view.append({ ...message, columns });
  model.on("change:runs", update);
  model.on("change:paths", update);
  model.on("change:focus", point);
  model.on("msg:custom", append);
  point();
  return () => {
    model.off("msg:custom", append);
    model.off("change:runs", update);
    model.off("change:paths", update);
    model.off("change:focus", point);
    view.end();
  };
}

export default { render };
