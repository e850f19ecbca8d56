// A timeline as a slide draws it: few ranks, each a thick bar, letters for the last row (slide_bars.js).

const bars = globalThis.slideBars;
const ranks = globalThis.slideRanks;
const messages = globalThis.slideMessages;

const LENGTHS = 42; // of how long a run took
const GAP = 14; // between two ranks, and with arrows from one to the other
const WIDE_GAP = 34;
const STEP_GAP = 34; // with those of an enlarged step
const BLOCK = 42; // of a run that is many steps
const MEMORY = 64; // of what a rank holds, under its bars
const MOST_ARROWS = 16;
const UNITS = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
  ["ns", 1],
];

/** A scale of time between two pixels. */
const scaleOf = (from, to, left, right) => (time) => left + ((time - from) / (to - from)) * (right - left);

/** Room for a rank's tracks of a run, in `high` pixels for all of them. */
function placed(shown, top, high, { words, gap }) {
  const each = (high - shown.filter(({ more }) => more).length * words - (shown.length - 1) * gap) / shown.length;
  let y = top;
  return shown.map((one) => {
    const place = { ...one, y, high: each };
    y += each + gap + (one.more ? words : 0);
    return place;
  });
}

const lastedOf = ({ measured, span }) => (measured ? measured[1] - measured[0] : span);

/** A time in words: "797 µs". */
function timeWords(ns) {
  const [name, size] = UNITS.find(([, each]) => ns >= each * 0.9995) ?? UNITS.at(-1);
  return `${Number((ns / size).toPrecision(3))} ${name}`;
}

function bytesWords(bytes) {
  const [name, size] = [
    ["GB", 1e9],
    ["MB", 1e6],
    ["KB", 1e3],
    ["B", 1],
  ].find(([, each]) => bytes >= each * 0.9995) ?? ["B", 1];
  return `${Number((bytes / size).toPrecision(3))} ${name}`;
}

/** What a rank held, over time, under its bars. */
function memoryOf(drawing, run, { rank, y, high }, x, most) {
  const held = run.held.get(rank);
  if (!held) return;
  const base = y + high;
  const points = [`M${x(0)} ${base}`];
  let last = base;
  held.time.forEach((time, k) => {
    points.push(`L${x(time).toFixed(1)} ${last.toFixed(1)}`);
    last = base - (held.held[k] / most) * (MEMORY - 6);
    points.push(`L${x(time).toFixed(1)} ${last.toFixed(1)}`);
  });
  points.push(`L${x(run.span).toFixed(1)} ${last.toFixed(1)}L${x(run.span).toFixed(1)} ${base}Z`);
  const { theme } = drawing.state;
  drawing.add(`<path d="${points.join("")}" fill="${theme.held}" stroke="${theme.quiet}" stroke-width="2"/>`);
  drawing.add(bars.textOf(x(run.span) + 10, base - 16, bytesWords(held.most), bars.WORDS, `fill="${theme.ink}"`));
}

/** One run's ranks below each other, from `top` on. */
function drawRun(drawing, number, { top, high, x, from, to, left, hasNames, hasMemory, shown, gap = GAP }) {
  const run = drawing.state.runs[number];
  const tracks = ranks.tracksOf(
    run,
    shown.map(({ rank }) => rank),
  );
  const places = placed(shown, top, high, { words: bars.NAMES + 2, gap });
  const most = Math.max(1, ...[...run.held.values()].map((held) => held.most));
  for (const { rank, y, high: each, more } of places) {
    const room = each - (hasMemory ? MEMORY + 4 : 0);
    const one = (room - 4 * (tracks.length - 1)) / tracks.length;
    drawing.add(bars.rectOf(x(from), y, x(to) - x(from), room, `fill="${drawing.state.theme.band}"`));
    tracks.forEach((lanes, k) => drawing.track(run, rank, lanes, { x, y: y + k * (one + 4), high: one, from, to }));
    if (hasMemory) memoryOf(drawing, run, { rank, y, high: each }, x, most);
    if (!hasNames) continue;
    const name = `${bars.isPipeline(run) ? "stage" : "rank"} ${rank}`;
    drawing.add(bars.textOf(left, y + Math.min(room / 2 + 12, room), name, bars.NAMES, `fill="${drawing.ink}"`));
    if (more) drawing.add(bars.textOf(left, y + each + 32, more, bars.TICKS, `fill="${drawing.quiet}"`));
  }
  return places;
}

/** Messages between ranks that are shown, where there are few. */
function arrowsOf(drawing) {
  const shown = new Set(drawing.shown[0].map(({ rank }) => rank));
  const arrows = messages.messagesOf(drawing.state.runs[0]);
  const seen = arrows.filter(([, , one, other]) => one !== other && shown.has(one) && shown.has(other));
  return seen.length > MOST_ARROWS ? [] : seen;
}

/** A message's arrow, from when its sender begins to move it to when its receiver has it. */
function drawMessage(drawing, places, x, [source, target, from, to]) {
  const [run] = drawing.state.runs;
  const [one, other] = [from, to].map((rank) => places.find((place) => place.rank === rank));
  const [y1, y2] = other.y > one.y ? [one.y + one.high, other.y] : [one.y, other.y + other.high];
  messages.drawArrow(
    drawing,
    [x(messages.movedIn(run, from, source)[0]), y1],
    [x(messages.movedIn(run, to, target)[1]), y2],
  );
}

/** Times under a run, and its length at its end. */
function drawAxis(drawing, run, x, y) {
  const length = run.span;
  const power = 10 ** Math.floor(Math.log10(length / 5));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((each) => each >= length / 5);
  const [unit, size] = UNITS.find(([, each]) => length >= each) ?? UNITS.at(-1);
  const end = timeWords(length);
  const free = x(length) - bars.widthIn(end, LENGTHS, 650) - 90;
  const { theme } = drawing.state;
  for (let tick = 0; x(tick) < free; tick += step) {
    drawing.add(bars.rectOf(x(tick) - 1, y, 2, 10, `fill="${theme.quiet}"`));
    drawing.add(
      bars.textOf(
        x(tick),
        y + 38,
        tick ? `${Number((tick / size).toPrecision(3))} ${unit}` : "0",
        bars.TICKS,
        `text-anchor="middle" fill="${theme.quiet}"`,
      ),
    );
  }
  drawing.add(bars.rectOf(x(0), y, x(length) - x(0), 2, `fill="${theme.quiet}"`));
  drawing.add(bars.textOf(x(length), y + 44, end, LENGTHS, `text-anchor="end" font-weight="650" fill="${theme.ink}"`));
}

/** The ranks that are drawn of each run: of steps that all ranks do at once, two beside another run. */
function shownOf({ state, most }) {
  return state.runs.map((run, number) =>
    state.runs.length > 1 && messages.stepOf(run, 0) ? ranks.firstRanks(run, 2) : ranks.ranksOf(state, number, most),
  );
}

/** How wide the names of ranks are, and the words for those that are not shown. */
function namesOf({ state, shown }) {
  const name = bars.isPipeline(state.runs[0]) ? "stage" : "rank";
  const widths = ({ rank, more }) => [bars.widthIn(`${name} ${rank}`, bars.NAMES), bars.widthIn(more, bars.TICKS)];
  return Math.max(...shown.flat().flatMap(widths));
}

/** One run: its key, its ranks, and below them its time. */
function drawOne(drawing, hasMemory) {
  const { state, width, height } = drawing;
  const [run] = state.runs;
  const names = namesOf(drawing);
  const x = scaleOf(0, run.span, names + 22, width - 6 - (hasMemory ? 130 : 0));
  drawing.arrows = arrowsOf(drawing);
  const gap = drawing.arrows.length ? WIDE_GAP : GAP;
  const whole = { x, from: 0, to: run.span, left: 4, hasNames: true, hasMemory, shown: drawing.shown[0], gap };
  const places = withKey(drawing, (top) => drawRun(drawing, 0, { ...whole, top, high: height - top - 62 }));
  drawing.arrows.forEach((each) => drawMessage(drawing, places, x, each));
  drawAxis(drawing, run, x, height - 54);
}

/** Draw from the top on, or, where colours need words, from below a key on; return what came of it. */
function withKey(drawing, draw) {
  const drawn = draw(4);
  if (!drawing.key().length) return drawn;
  Object.assign(drawing, { parts: [], words: [], named: new Set(), untold: new Set(), seen: new Map() });
  const below = draw(54);
  drawing.writeKey(34);
  return below;
}

/** Two runs on one axis, with their lengths at their ends; of one that is many steps the first, enlarged. */
function drawTwo(drawing) {
  const { state, width, height, shown } = drawing;
  const longest = Math.max(...state.runs.map(({ span }) => span));
  const ends = Math.max(...state.runs.map((run) => bars.widthIn(timeWords(lastedOf(run)), LENGTHS, 650)));
  const left = 4 + namesOf(drawing) + 22;
  const x = scaleOf(0, longest, left, width - ends - 20);
  const steps = state.runs.map((run, number) => messages.stepOf(run, shown[number][0].rank));
  const long = Math.max(...steps.map((step) => (step ? step[1] - step[0] : 0)));
  const near = ([begin]) => scaleOf(begin, begin + long, left, width - 6); // one scale for the steps of both
  const isBeside = state.runs.map(
    (_, number) => steps[number] && bars.widthIn(nameOf(state, number, steps), bars.NAMES, 650) + 20 < left,
  );
  const weights = steps.map((step, number) => (step && !isBeside[number] ? 1.75 : (step && 1.35) || 1));
  withKey(drawing, (top) => {
    let y = top;
    state.runs.forEach((run, number) => {
      const each = ((height - top - 16) * weights[number]) / (weights[0] + weights[1]);
      if (number) drawing.add(bars.rectOf(0, y - 8, width, 2, `fill="${drawing.quiet}"`));
      drawing.add(bars.textOf(4, y + 32, nameOf(state, number, steps), bars.NAMES, boldIn(drawing)));
      const step = steps[number];
      const from = y + (isBeside[number] ? 2 : 46);
      const whole = { x, from: 0, to: run.span, left: 4, hasNames: true, shown: shown[number] };
      if (step) {
        drawBlock(drawing, run, step, x, from);
        drawEnds(drawing, run, x, from, BLOCK);
        enlarge(drawing, number, step, { ...whole, near: near(step), top: from + BLOCK, bottom: y + each - 4 });
      } else {
        const last = drawRun(drawing, number, { ...whole, top: from, high: each - 56 }).at(-1);
        drawEnds(drawing, run, x, from, last.y + last.high - from);
      }
      y += each + 16;
    });
  });
}

const boldIn = ({ ink }) => `font-weight="650" fill="${ink}"`;

/** A run's name, and of two that are steps how many times as long as the first the other one takes. */
function nameOf({ runs }, number, steps) {
  const times = lastedOf(runs[number]) / lastedOf(runs[0]);
  return runs[number].name + (number && steps.every(Boolean) ? `: ${times.toFixed(1)} times as long` : "");
}

/** A line where a run ends, and beside it how long it took. */
function drawEnds(drawing, run, x, top, high) {
  const end = x(run.measured?.[1] ?? run.span);
  drawing.add(bars.rectOf(end, top - 6, 3, high + 12, `fill="${drawing.ink}"`));
  drawing.add(bars.textOf(end + 14, top + high / 2 + 14, timeWords(lastedOf(run)), LENGTHS, boldIn(drawing)));
}

/** All steps of a run as one block, in which the first is marked. */
function drawBlock(drawing, run, [begin, end, count], x, y) {
  const [from, to] = [x(begin), x(run.measured?.[1] ?? run.span)];
  const { theme } = drawing.state;
  drawing.add(bars.rectOf(from, y, to - from, BLOCK, `fill="${theme.band}" stroke="${drawing.ink}" stroke-width="2"`));
  drawing.add(bars.rectOf(from, y, x(end) - from, BLOCK, `data-step fill="${drawing.ink}"`));
  const look = `text-anchor="middle" fill="${drawing.ink}"`;
  drawing.add(bars.textOf((x(end) + to) / 2, y + BLOCK / 2 + 13, `${count} steps`, bars.NAMES, look));
}

/** The first step of a run below the block of all of them, as wide as there is room. */
function enlarge(drawing, number, [begin, end, count], { x, near, top, bottom, ...whole }) {
  const run = drawing.state.runs[number];
  const ray = `stroke="${drawing.quiet}" stroke-width="2" stroke-dasharray="6 6"`;
  const from = top + 24;
  drawing.add(...[begin, end].map((time) => `<path d="M${x(time)} ${top}L${near(time)} ${from}" ${ray}/>`));
  const more = whole.shown.at(-1).more ? 0 : bars.NAMES + 2;
  const step = { ...whole, x: near, from: begin, to: end, top: from, high: bottom - from - more, gap: STEP_GAP };
  const right = handOn(drawing, run, drawRun(drawing, number, step), { begin, end, x: near });
  const words = `step 1 of ${count}: ${timeWords(end - begin)}`;
  const isFree = right + bars.widthIn(words, bars.NAMES) + 30 < drawing.width;
  const [at, anchor] = isFree ? [drawing.width - 6, "end"] : [near(begin), "start"];
  drawing.add(bars.textOf(at, bottom - 8, words, bars.NAMES, `text-anchor="${anchor}" fill="${drawing.ink}"`));
}

/** Arrows from each rank's send to the next one's receive in an enlarged step; where the last one's words end. */
function handOn(drawing, run, places, { begin, end, x }) {
  let right = 0;
  for (const [source, target, from, to] of messages.messagesOf(run)) {
    const at = places.findIndex(({ rank }) => rank === from);
    if (at < 0 || run.start[source] < begin || run.start[source] >= end || to !== from + 1) continue;
    const y = places[at].y + places[at].high;
    const [sent, received] = [x(messages.movedIn(run, from, source)[1]), x(messages.movedIn(run, to, target)[0])];
    messages.drawArrow(drawing, [sent - STEP_GAP, y], [received + STEP_GAP, y + STEP_GAP]);
    if (at < places.length - 1) continue;
    const [words, left] = [`to rank ${to}`, received + STEP_GAP + 16];
    drawing.add(bars.textOf(left, y + STEP_GAP, words, bars.NAMES, `fill="${drawing.ink}"`));
    right = left + bars.widthIn(words, bars.NAMES);
  }
  return right;
}

/** A timeline's drawing for a slide, as SVG of this size. */
globalThis.slideDrawing = (state, legend, size, hasMemory) => {
  const drawing = new bars.Drawing(state, legend, size);
  drawing.shown = shownOf(drawing);
  if (state.runs.length > 1) drawTwo(drawing);
  else drawOne(drawing, hasMemory);
  const box = `viewBox="0 0 ${size.width} ${size.height}" width="${size.width}" height="${size.height}"`;
  const inner = [...drawing.parts, ...drawing.words].join("");
  return `<svg class="hall-timeline" role="img" ${box} aria-label="${bars.escaped(state.summary)}">${inner}</svg>`;
};
