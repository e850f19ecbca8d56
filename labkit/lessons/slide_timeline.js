// A timeline as a slide draws it: few ranks, each a thick bar, letters for the last row (slide_bars.js).

const bars = globalThis.slideBars;
const ranks = globalThis.slideRanks;

const LENGTHS = 42; // of how long a run took
const GAP = 14; // between two ranks, and with arrows from one to the other
const WIDE_GAP = 34;
const STEP_GAP = 26; // with those of an enlarged step
const MEMORY = 64; // of what a rank holds, under its bars
const MOST_ARROWS = 16;
const CROWDED = 14; // pixels of a bar, under which the first step is drawn again, enlarged
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

/** When a call began to move bytes, and when it had moved them. */
function movedIn(run, rank, event) {
  const rows = run.rows.filter((row) => row.rank === rank && event >= row.first && event < row.last);
  const moved = rows.flatMap((row) => bars.barsOf(run, row)).filter((bar) => bar[3] === event && bar[2] !== bars.STILL);
  return [moved[0]?.[0] ?? run.start[event], moved.at(-1)?.[1] ?? run.end[event]];
}

/** A run's messages: [from event, to event, from rank, to rank]. */
function messagesOf(run) {
  const rankOf = (event) => run.rows.find(({ first, last }) => event >= first && event < last)?.rank;
  const arrows = [];
  run.flow_from?.forEach((source, f) => arrows.push([source, run.flow_to[f], rankOf(source), rankOf(run.flow_to[f])]));
  return arrows;
}

/** Messages between ranks that are shown, where there are few. */
function arrowsOf(drawing) {
  const shown = new Set(drawing.shown[0].map(({ rank }) => rank));
  const arrows = messagesOf(drawing.state.runs[0]);
  const seen = arrows.filter(([, , one, other]) => one !== other && shown.has(one) && shown.has(other));
  return seen.length > MOST_ARROWS ? [] : seen;
}

/** A message's arrow, from when its sender begins to move it to when its receiver has it. */
function drawMessage(drawing, places, x, [source, target, from, to]) {
  const [run] = drawing.state.runs;
  const [one, other] = [from, to].map((rank) => places.find((place) => place.rank === rank));
  const [y1, y2] = other.y > one.y ? [one.y + one.high, other.y] : [one.y, other.y + other.high];
  drawArrow(drawing, [x(movedIn(run, from, source)[0]), y1], [x(movedIn(run, to, target)[1]), y2]);
}

function drawArrow(drawing, [x1, y1], [x2, y2]) {
  const { theme } = drawing.state;
  const angle = Math.atan2(y2 - y1, x2 - x1);
  const sides = [2.6, -2.6].map((turn) => [x2 + 18 * Math.cos(angle + turn), y2 + 18 * Math.sin(angle + turn)]);
  const [a, b] = sides.map((side) => side.map((each) => each.toFixed(1)).join(" "));
  const d = `M${x1.toFixed(1)} ${y1.toFixed(1)}L${x2.toFixed(1)} ${y2.toFixed(1)}`;
  drawing.add(`<path d="${d}" stroke="${theme.paper}" stroke-width="8"/>`);
  drawing.add(`<path d="${d}" stroke="${theme.arrow}" stroke-width="3.5"/>`);
  drawing.add(`<path d="M${x2.toFixed(1)} ${y2.toFixed(1)}L${a}L${b}Z" fill="${theme.arrow}"/>`);
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

/** The ranks that are drawn of each run: of steps that all ranks do at once, three beside another run. */
function shownOf({ state, most }) {
  return state.runs.map((run, number) =>
    state.runs.length > 1 && stepOf(run, 0) ? ranks.firstRanks(run, 3) : ranks.ranksOf(state, number, most),
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

/** The first of many steps that are a send and a receive each: [begin, end, how many]. */
function stepOf(run, rank) {
  const row = run.rows.find((each) => each.rank === rank && each.lane === 1);
  if (!row) return null;
  const kinds = [];
  for (let i = row.first; i < row.last; i++) kinds.push(run.labels[run.label[i]][1]);
  const first = kinds.findIndex((kind) => /send|recv/.test(kind));
  const calls = kinds.slice(first);
  const isStep = (kind, k) => k % 2 || /^i?recv\+i?send$/.test([kind, calls[k + 1]].sort().join("+"));
  if (first < 0 || calls.length < 6 || !calls.every(isStep)) return null;
  return [run.start[row.first + first], run.start[row.first + first + 2], calls.length / 2];
}

/** Two runs on one axis, with their lengths at their ends; of one that is short and crowded the first step again. */
function drawTwo(drawing) {
  const { state, width, height, shown } = drawing;
  const left = 4;
  const longest = Math.max(...state.runs.map(({ span }) => span));
  const ends = Math.max(...state.runs.map((run) => bars.widthIn(timeWords(lastedOf(run)), LENGTHS, 650)));
  const names = namesOf(drawing);
  const x = scaleOf(0, longest, left + names + 22, width - ends - 20);
  const steps = state.runs.map((run, number) => stepOf(run, shown[number][0].rank));
  const isOneStepped = steps.filter(Boolean).length === 1;
  const draw = (top) => {
    const weights = steps.map((step) => (step && isOneStepped ? 1.4 : 1));
    let y = top;
    state.runs.forEach((run, number) => {
      const each = ((height - top - 24) * weights[number]) / (weights[0] + weights[1]);
      const [end, from, high] = [x(run.measured?.[1] ?? run.span), y + 46, each - (steps[number] ? 56 : 48)];
      if (number) drawing.add(bars.rectOf(0, y - 14, width, 2, `fill="${drawing.quiet}"`));
      drawing.add(bars.textOf(left, y + 32, run.name, bars.NAMES, `font-weight="650" fill="${drawing.ink}"`));
      const gap = steps[number] && isOneStepped ? STEP_GAP : GAP;
      const whole = { top: from, high, x, from: 0, to: run.span, left, hasNames: true, shown: shown[number], gap };
      const places = drawRun(drawing, number, whole);
      drawing.add(
        bars.rectOf(end, from - 6, 3, places.at(-1).y + places.at(-1).high - from + 12, `fill="${drawing.ink}"`),
      );
      const words = timeWords(lastedOf(run));
      const look = `font-weight="650" fill="${drawing.ink}"`;
      drawing.add(bars.textOf(end + 14, from + high / 2, words, LENGTHS, look));
      if (steps[number]) {
        nameSteps(drawing, run, steps[number][2], places, x);
        const room = { x, from: end + ends + 40, top: from, high };
        if (isOneStepped) enlarge(drawing, number, places, steps[number], room);
      }
      y += each + 24;
    });
  };
  withKey(drawing, draw);
}

/** Say below a run's bars how many steps they are. */
function nameSteps(drawing, run, count, places, x) {
  const { rank, y, high } = places.at(-1);
  const { last } = run.rows.find((row) => row.rank === rank && row.lane === 1);
  const [begin, end] = [x(run.start[last - 2 * count]), x(run.end[last - 1])];
  const look = `text-anchor="middle" fill="${drawing.ink}"`;
  drawing.add(`<path d="M${begin} ${y + high + 4}v7H${end}v-7" fill="none" stroke="${drawing.ink}" stroke-width="2"/>`);
  drawing.add(bars.textOf((begin + end) / 2, y + high + 40, `${count} steps`, bars.TICKS, look));
}

/** The first step of a run whose bars are too narrow to be told apart, as wide as there is room. */
function enlarge(drawing, number, places, [begin, end, count], { x, from, top, high }) {
  const run = drawing.state.runs[number];
  if (drawing.width - from < 420 || x(end) - x(begin) > 3 * CROWDED) return;
  const bottom = places.at(-1).y + places.at(-1).high;
  const near = scaleOf(begin, end, from, drawing.width - 6);
  const times = Math.round((near(end) - near(begin)) / (x(end) - x(begin)));
  const words = `step 1 of ${count}, enlarged ${times} times`;
  drawing.add(bars.textOf(from, top - 14, words, bars.TICKS, `fill="${drawing.quiet}"`));
  const frame = `fill="none" stroke="${drawing.ink}" stroke-width="2"`;
  const step = { top, high, x: near, from: begin, to: end, hasNames: false, shown: drawing.shown[number] };
  drawRun(drawing, number, { ...step, gap: STEP_GAP });
  handOn(drawing, run, places, { begin, end, x: near });
  drawing.add(bars.rectOf(x(begin), top - 4, x(end) - x(begin), bottom - top + 8, frame));
  drawing.add(
    ...[top - 4, bottom + 4].map((y) => `<path d="M${x(end)} ${y}L${from - 6} ${y}" ${frame} stroke-dasharray="6 6"/>`),
  );
}

/** One arrow for each rank of an enlarged step: from its send to the receive of the next, which may not be shown. */
function handOn(drawing, run, places, { begin, end, x }) {
  for (const [source, target, from, to] of messagesOf(run)) {
    const at = places.findIndex(({ rank }) => rank === from);
    if (at < 0 || run.start[source] < begin || run.start[source] >= end || to !== from + 1) continue;
    const y = places[at].y + places[at].high;
    const [sent, received] = [x(movedIn(run, from, source)[1]), x(movedIn(run, to, target)[0])];
    drawArrow(drawing, [sent - STEP_GAP, y], [received + STEP_GAP, y + STEP_GAP]);
  }
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
