// A timeline as a slide draws it: few ranks, each a thick bar, letters for the last row (slide_bars.js).

const bars = globalThis.slideBars;
const ranks = globalThis.slideRanks;
const messages = globalThis.slideMessages;

const LENGTHS = 50; // of how long each of two runs took
const LENGTH = 42; // of how long one did, on its axis
const DOTS = 28; // of those for ranks that are not shown
const GAP = 14; // between two ranks, and with arrows from one to the other
const WIDE_GAP = 34;
const AXIS = 54; // of times under all runs
const HEAD = 46; // of a run's name
const SPACE = 16; // between two runs
const ENLARGED = 80; // of a step below its run, and of what joins the two
const FAN = 26;
const MEMORY = 64; // of what a rank holds, under its bars
const MOST_ARROWS = 16;
const NEIGHBOURS = 4; // ranks of a ring that a room counts links of
const UNITS = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
  ["ns", 1],
];

/** A scale of time between two pixels. */
const scaleOf = (from, to, left, right) => (time) => left + ((time - from) / (to - from)) * (right - left);

/** Pixels of what stands below a rank for those that are not shown: dots or words. */
const belowOf = ({ more }) => [0, DOTS][more.length] ?? bars.NAMES + 2;

/** Those of all ranks, and of what is between them. */
const betweenOf = (shown, gap) => shown.reduce((sum, one) => sum + belowOf(one), (shown.length - 1) * gap);

/** Room for a rank's tracks of a run, in `high` pixels for all of them. */
function placed(shown, top, high, gap) {
  const each = (high - betweenOf(shown, gap)) / shown.length;
  let y = top;
  return shown.map((one) => {
    const place = { ...one, y, high: each };
    y += each + gap + belowOf(one);
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
  const places = placed(shown, top, high, gap);
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
    const [at, low] = more.length > 1 ? [x(from), 36] : [left + bars.widthIn("ran", bars.NAMES), DOTS];
    if (more) drawing.add(bars.textOf(at, y + each + low, more, bars.TICKS, `fill="${drawing.ink}"`));
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

/** Where a message's last byte leaves, and where its receiver has it. */
const lastByte = (run, x, [source, target, from, to]) => [
  x(messages.movedIn(run, from, source)[1]),
  x(messages.movedIn(run, to, target)[1]),
];

/** A message's arrow, from when its last byte leaves to when its receiver has it. */
function drawMessage(drawing, places, x, [source, target, from, to]) {
  const [left, landed] = lastByte(drawing.state.runs[0], x, [source, target, from, to]);
  const [one, other] = [from, to].map((rank) => places.find((place) => place.rank === rank));
  const [y1, y2] = other.y > one.y ? [one.y + one.high, other.y] : [one.y, other.y + other.high];
  messages.drawArrow(drawing, [left, y1], [landed, y2]);
}

/** Round times from 0 to a length, in words where there is room before `free`. */
function drawTicks(drawing, length, x, y, free) {
  const power = 10 ** Math.floor(Math.log10(length / 5));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((each) => each >= length / 5);
  const [unit, size] = UNITS.find(([, each]) => length >= each) ?? UNITS.at(-1);
  const look = `text-anchor="middle" fill="${drawing.quiet}"`;
  for (let tick = 0; tick <= length; tick += step) {
    const words = tick ? `${Number((tick / size).toPrecision(3))} ${unit}` : "0";
    if (x(tick) >= free) continue;
    drawing.add(bars.rectOf(x(tick) - 1, y, 2, 10, `fill="${drawing.quiet}"`));
    drawing.add(bars.textOf(x(tick), y + 42, words, bars.TICKS, look));
  }
  drawing.add(bars.rectOf(x(0), y, x(length) - x(0), 2, `fill="${drawing.quiet}"`));
}

/** Times under a run, and its length at its end. */
function drawAxis(drawing, { span }, x, y) {
  const end = timeWords(span);
  drawTicks(drawing, span, x, y, x(span) - bars.widthIn(end, LENGTH, 650) - 90);
  drawing.add(bars.rectOf(x(span) - 2, y, 2, 10, `fill="${drawing.quiet}"`));
  drawing.add(bars.textOf(x(span), y + 44, end, LENGTH, `text-anchor="end" ${boldIn(drawing)}`));
}

/** The ranks that are drawn of each run: of one in steps beside another run the first, of one to be found out a few. */
function shownOf({ state, most }) {
  const areSteps = state.runs.every((run) => messages.stepOf(run, 0));
  return state.runs.map((run, number) => {
    if (state.runs.length === 1 || !messages.stepOf(run, 0)) return ranks.ranksOf(state, number, most);
    const few = areSteps && number ? NEIGHBOURS : 1;
    const more = few > 1 ? ranks.restOf(run, few) : "";
    return Array.from({ length: few }, (_, rank) => ({ rank, more: rank === few - 1 ? more : "" }));
  });
}

/** How wide the names of ranks are. */
function namesOf({ state, shown }) {
  const name = bars.isPipeline(state.runs[0]) ? "stage" : "rank";
  return Math.max(...shown.flat().map(({ rank }) => bars.widthIn(`${name} ${rank}`, bars.NAMES)));
}

/** One run: its key, its ranks, and below them its time. */
function drawOne(drawing, hasMemory) {
  const { state, width, height } = drawing;
  const [run] = state.runs;
  const names = namesOf(drawing);
  const held = hasMemory ? drawing.shown[0].map(({ rank }) => run.held.get(rank)?.most ?? 0) : [];
  const right = Math.max(0, ...held.map((most) => bars.widthIn(bytesWords(most), bars.WORDS) + 10));
  const x = scaleOf(0, run.span, names + 22, width - 14 - right);
  drawing.arrows = bars.isPipeline(run) ? [] : arrowsOf(drawing);
  drawing.crossed = drawing.arrows.map((each) => lastByte(run, x, each));
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

/**
 * Two runs on one axis, with their lengths at their ends. Below a run whose ranks send and receive at once its first
 * step is enlarged; the axis is then above both, for what is below it is not as wide.
 */
function drawTwo(drawing) {
  const { state, width, height, shown } = drawing;
  const areSteps = state.runs.every((run) => messages.stepOf(run, 0));
  const parts = state.runs.map((run, number) => wholeOf(run, areSteps && number > 0));
  const longest = Math.max(...state.runs.map(({ span }) => span));
  const step = parts[1].isAtOnce && !areSteps ? messages.stepOf(state.runs[1], 0) : null;
  const lengths = [...parts.map(({ lasts }) => lasts), ...(step ? [timeWords(step.end - step.begin)] : [])];
  const ends = Math.max(...lengths.map((words) => bars.widthIn(words, LENGTHS, 650)));
  const left = 4 + namesOf(drawing) + 22;
  const x = scaleOf(0, longest, left, width - ends - 20);
  const below = shown.map((own) => betweenOf(own, GAP));
  const enlarged = step ? FAN + ENLARGED - SPACE : 0;
  withKey(drawing, (top) => {
    const taken = AXIS + 2 * (SPACE + HEAD) + below[0] + below[1] + enlarged;
    const each = (height - top - taken) / shown.flat().length;
    let y = top;
    parts.forEach((part, number) => {
      if (number && !step) drawing.add(bars.rectOf(0, y - 10, width, 2, `fill="${drawing.quiet}"`));
      drawHead(drawing, part, y + 32);
      const high = each * shown[number].length + below[number];
      const own = { x, left: 4, shown: shown[number], top: y + HEAD, high };
      drawRun(drawing, number, { ...own, from: 0, to: state.runs[number].span, hasNames: true });
      drawEnds(drawing, part, x, own.top, high - belowOf(shown[number].at(-1)));
      y += HEAD + high + SPACE;
      if (!step || number) return;
      drawTicks(drawing, longest, x, y - 6, width);
      y += AXIS;
    });
    if (step) drawStep(drawing, { x, left, right: x(longest), from: y - SPACE, ...step });
    else drawTicks(drawing, longest, x, height - AXIS, width);
  });
}

/** A run's name, and how many steps it has. */
function drawHead(drawing, { name, steps }, y) {
  drawing.add(bars.textOf(4, y, name, bars.NAMES, boldIn(drawing)));
  const after = 4 + bars.widthIn(name, bars.NAMES, 650) + 24;
  drawing.add(bars.textOf(after, y, steps, bars.WORDS, `fill="${drawing.ink}"`));
}

const boldIn = ({ ink }) => `font-weight="650" fill="${ink}"`;

/** A run in words: its name and length, of one in steps how many; and what each is, but of one to be found out. */
function wholeOf(run, isToFind) {
  const step = messages.stepOf(run, 0);
  const isAtOnce = step && [...run.ranks.keys()].every((rank) => messages.bothWays(run, rank));
  const sizes = new Set(step?.sizes.map(bytesWords));
  const much = sizes.size === 1 ? `${[...sizes][0]} ` : "";
  const what = isAtOnce && !isToFind ? `: each rank sends and receives ${much}at once` : "";
  const steps = step ? `${step.count} steps${what}` : "";
  return { end: run.measured?.[1] ?? run.span, lasts: timeWords(lastedOf(run)), name: run.name, steps, isAtOnce };
}

/** A line where a run ends, and beside it how long it took. */
function drawEnds(drawing, { end, lasts }, x, top, high) {
  drawing.add(bars.rectOf(x(end), top - 6, 3, high + 12, `fill="${drawing.ink}"`));
  drawing.add(bars.textOf(x(end) + 14, top + high / 2 + 14, lasts, LENGTHS, boldIn(drawing)));
}

/** Of the second run the first step, in a frame below where it is, with how long it is and how much wider drawn. */
function drawStep(drawing, { x, left, right, from, begin, end }) {
  const { state, ink } = drawing;
  const [top, wide] = [from + FAN, scaleOf(begin, end, left, right)];
  const [run, low, look] = [state.runs[1], top + ENLARGED / 2 + 14, `fill="${ink}"`];
  const line = `stroke="${ink}" stroke-width="2"`;
  const [one, other] = [x(begin), x(end)].map((at) => at.toFixed(1));
  const fan = `M${left} ${top}L${one} ${from}H${other}L${right} ${top}`;
  drawing.add(`<path d="${fan}" fill="${state.theme.band}" ${line}/>`);
  const track = { x: wide, y: top, high: ENLARGED, from: begin, to: end };
  for (const lanes of ranks.tracksOf(run, [0])) drawing.track(run, 0, lanes, track);
  drawing.add(bars.rectOf(left, top, right - left, ENLARGED, `fill="none" ${line}`));
  drawing.add(bars.textOf(4, low, "step 0", bars.NAMES, look));
  drawing.add(bars.textOf(right + 14, low, timeWords(end - begin), LENGTHS, boldIn(drawing)));
  const times = Number(((wide(end) - wide(begin)) / (x(end) - x(begin))).toPrecision(2));
  const says = `${times} times as wide`;
  drawing.add(bars.textOf(drawing.width - 4, from - 16, says, bars.WORDS, `text-anchor="end" ${look}`));
}

/** A timeline's drawing for a slide, as SVG of this size. */
globalThis.slideDrawing = (state, legend, size, hasMemory) => {
  const drawing = new bars.Drawing(state, legend, size);
  drawing.shown = shownOf(drawing);
  if (state.runs.length === 1) drawOne(drawing, hasMemory);
  else drawTwo(drawing);
  const box = `viewBox="0 0 ${size.width} ${size.height}" width="${size.width}" height="${size.height}"`;
  const inner = [...drawing.parts, ...drawing.words].join("");
  return `<svg class="hall-timeline" role="img" ${box} aria-label="${bars.escaped(state.summary)}">${inner}</svg>`;
};
