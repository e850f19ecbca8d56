// Bars of a timeline as a slide draws them: thick, their names in them, a key for those that have no room for one.

const NAMES = 42; // pixels of the names of ranks, and of a key
const WORDS = 38; // of what stands in a bar
const NARROW = [38, 34, 30, 27]; // of what has less room there
const BESIDE = [38, 36]; // of that where two runs have a key
const TICKS = 40;
const STILL = 6; // the category of time in which a rank stands still (labkit/widgets/palette.py)
const MOVES = new Set([4, 7]); // those of a send and a receive
const NAMED = -1; // that of brackets, where nothing else says what a rank does
const SEEN = 10; // pixels of a bar that a room asks about
const MOST_WORDS = 3; // of one colour
const BRIEF = 50; // pixels under which a barrier that all ranks begin with, and what is before it, are one bar
const SLIDE_FONT = 'system-ui, "Helvetica Neue", Arial, sans-serif';
const pen = document.createElement("canvas").getContext("2d");

/** How wide words are in letters of a size. */
function widthIn(words, size, weight = 400) {
  pen.font = `${weight} ${size}px ${SLIDE_FONT}`;
  return pen.measureText(words).width;
}

const escaped = (words) => String(words).replace(/[&<>"]/g, (each) => `&#${each.charCodeAt(0)};`);
const rectOf = (x, y, wide, high, look) =>
  `<rect x="${x.toFixed(2)}" y="${y}" width="${Math.max(wide, 0).toFixed(2)}" height="${high}" ${look}/>`;
const textOf = (x, y, words, size, look = "") =>
  `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" font-size="${size}" ${look}>${escaped(words)}</text>`;

/** Lines over a bar in which a rank stands still, as far apart as a schedule's; a pattern is printed as a picture. */
function hatch(x, y, wide, high, colour) {
  const lines = [];
  for (let from = -high; from < wide; from += 15) {
    const [a, b] = [Math.max(from, 0), Math.min(from + high, wide)];
    const [low, top] = [a, b].map((at) => `${(x + at).toFixed(1)} ${(y + high - (at - from)).toFixed(1)}`);
    lines.push(`M${low}L${top}`);
  }
  return `<path d="${lines.join("")}" stroke="${colour}" stroke-width="1.2"/>`;
}

/** Bars of a row: [begin, end, category, event]. */
function barsOf({ segmentStart, segmentEnd, segmentCategory, owner }, row) {
  const bars = [];
  for (let s = row.from; s < row.to; s++) bars.push([segmentStart[s], segmentEnd[s], segmentCategory[s], owner[s]]);
  return bars;
}

/** Events of a row: [begin, end, category, event]. */
function eventsOf({ start, end, category }, { first, last }) {
  return Array.from({ length: last - first }, (_, k) => first + k).map((at) => [start[at], end[at], category[at], at]);
}

/** What a bar is called in a room. */
function wordOf(run, category, event, blue) {
  const name = run.labels[run.label[event]][0].replace(/ \d+$/, ""); // "load 3" is a load
  if (category === STILL) return "waits";
  if (category === 0) return /^add_?$/.test(name) ? "add" : blue;
  const short = name
    .replaceAll("_", "-")
    .replace("-into-tensor", "")
    .replace(/-tensor$/, "");
  return [NAMED, 3].includes(category) || category > 7 ? short : run.categories[category][0];
}

/** Whether a run's ranks are the stages of a pipeline. */
const isPipeline = (run) => /stages stand idle/.test(run.title);

/** What a pipeline's stages run and when, as schedules name it: "0" is a forward, "B0" a backward. */
function worksOf(run, rank) {
  const rows = isPipeline(run) ? run.rows.filter((row) => row.rank === rank && row.lane === 3) : [];
  return rows
    .flatMap((row) => barsOf(run, row))
    .map(([begin, end, , event]) => [begin, end, run.labels[run.label[event]][0].replace(/^F(\d+)$/, "$1")]);
}

/** Whether a pipeline runs one batch, whole: then its work needs no number. */
function isOneBatch(run) {
  const works = [...run.ranks.keys()].flatMap((rank) => worksOf(run, rank));
  return works.length > 0 && works.every(([, , name]) => /^B?0$/.test(name));
}

/** Pieces of one work as one bar. */
function merged(bars) {
  const whole = [];
  for (const bar of bars) {
    const last = whole.at(-1);
    if (last?.words === bar.words && bar.a - last.b < 2) last.b = bar.b;
    else whole.push({ ...bar });
  }
  return whole;
}

/** When a rank is past the barrier that its run begins with, where that takes few pixels; else 0. */
function begunOf(run, rank, x) {
  const rows = run.rows.filter((row) => row.rank === rank && row.lane === 1);
  const [first] = rows.flatMap((row) => barsOf(run, row));
  const isBarrier = first && run.labels[run.label[first[3]]][0] === "barrier";
  const end = isBarrier ? run.end[first[3]] : 0;
  return x(end) - x(0) < BRIEF ? end : 0;
}

/** The time between bars of a stage, from one pixel to another. */
function idleBetween(bars, from, to) {
  const idle = [];
  let at = from;
  for (const { a, b } of [...bars, { a: to, b: to }]) {
    if (a - at > 3) idle.push({ a: at, b: a, category: STILL, words: "idle" });
    at = Math.max(at, b);
  }
  return idle;
}

class Drawing {
  constructor(state, legend, { width, height, most }) {
    Object.assign(this, {
      state,
      width,
      height,
      most,
      parts: [],
      words: [],
      named: new Set(),
      untold: new Set(),
      seen: new Map(),
      arrows: [],
      crossed: [], // from where to where each of them goes
    });
    const isForward = /forward/.test(legend) && (!/other/.test(legend) || state.runs.every(slideRanks.isForward));
    this.blue = isForward ? "forward" : "compute";
    this.arePipelines = state.runs.every(isPipeline);
    this.isOneBatch = this.arePipelines && state.runs.every(isOneBatch);
    this.round = this.arePipelines ? 'rx="5" ' : ""; // as a plan's
    [this.ink, this.quiet] = [state.theme.ink, state.theme.quiet];
  }

  add(...parts) {
    this.parts.push(...parts);
  }

  /** A track of a rank from y on, between two times of which the first is at `left`. */
  track(run, rank, lanes, { x, y, high, from, to }) {
    const ways = slideMessages.bothWays(run, rank);
    let all = [];
    const works = worksOf(run, rank);
    const begun = begunOf(run, rank, x);
    for (const lane of lanes.filter((each) => !ways || each !== 1)) {
      for (const row of run.rows.filter((each) => each.rank === rank && each.lane === lane)) {
        const bars = barsOf(run, row).filter(([begin, end]) => end > Math.max(from, begun) && begin < to);
        for (const [begin, end, category, event] of bars) {
          const [a, b] = [x(Math.max(begin, from)), x(Math.min(end, to))];
          const work = works.find(([begins, ends]) => begins <= begin && end <= ends);
          const words = work?.[2] ?? wordOf(run, lane === 3 ? NAMED : category, event, this.blue);
          all.push({ a, b, y, high, category: lane === 3 ? NAMED : category, words });
        }
      }
    }
    if (begun > from) all.push({ a: x(from), b: x(begun), y, high, category: NAMED, words: "start" });
    all.sort((one, other) => one.a - other.a);
    ways?.forEach((calls, k) =>
      this.half(run, calls, ways[1 - k], { x, y: y + (k * high) / 2, high: high / 2 - 1, from, to }),
    );
    if (isPipeline(run)) {
      all = merged(all.filter(({ category }) => category !== STILL)).filter(({ a, b }) => b - a > 3);
      all.push(...idleBetween(all, x(from), x(to)).map((each) => ({ ...each, y, high })));
      all.sort((one, other) => one.a - other.a);
    }
    all.forEach((bar) => this.bar(bar));
    this.nameBars(all);
  }

  /** Calls that take half of a track, for as long as each of them lasts, and then the wait for the other half's. */
  half(run, calls, others, { x, y, high, from, to }) {
    const isSeen = ([begin, end]) => end > from && begin < to;
    const drawn = calls.filter(isSeen).map(([begin, end, category, event]) => {
      return { a: x(begin), b: x(end), y, high, category, words: wordOf(run, category, event, this.blue) };
    });
    const ends = others.filter(isSeen).map(([, end]) => x(end));
    const waits = drawn.map(({ b }, k) => ({ a: b, b: ends[k], y, high, category: STILL, words: "waits" }));
    const stays = waits.filter(({ a, b }) => b - a > 1);
    if (stays.length) this.untold.add("waits");
    [...drawn, ...stays].forEach((bar) => this.bar(bar));
    if (drawn.length === 1) this.nameBars([...drawn, ...stays]);
    else if (this.state.runs.length === 1) this.nameBars(drawn);
    else drawn.forEach(({ words }) => this.untold.add(words)); // a word over several would hide where steps end
  }

  /** Write in bars what they are: in each, or once over several of one name that follow each other. */
  nameBars(bars) {
    const sizes = this.state.runs.length > 1 ? BESIDE : NARROW;
    for (let k = 0, next; k < bars.length; k = next) {
      const { words, y, high, category } = bars[k];
      for (next = k + 1; bars[next]?.words === words && bars[next].a - bars[next - 1].b < 5; next++);
      if (words === "idle" || this.isOneBatch) continue; // its key says so
      const own = bars.slice(k, next);
      const whole = own.at(-1).b - own[0].a;
      const size = sizes.find((each) => widthIn(words, each) + 12 <= whole && each <= high) ?? WORDS;
      const room = widthIn(words, size) + 12;
      const places = own.every(({ a, b }) => b - a >= room) ? own : [{ a: own[0].a, b: own.at(-1).b }];
      const hidesEnds = places.length < own.length && MOVES.has(category); // each is a message of its own
      if (high < size || whole < room || hidesEnds) {
        if (whole > SEEN) this.untold.add(words);
        continue;
      }
      this.named.add(words);
      const { onBar, paper } = this.state.theme;
      const isOver = places.length < own.length || category === STILL;
      for (const place of places) {
        const middle = this.clearOf(place, category === STILL ? room / 2 : 0);
        const ground = category === STILL ? paper : this.colourOf(category);
        if (isOver) {
          const [top, tall] = category === STILL ? [y + high / 2 - 20, 40] : [y, high];
          this.words.push(rectOf(middle - room / 2, top, room, tall, `fill="${ground}"`));
        }
        const ink = category === NAMED || category === STILL ? this.ink : onBar[category];
        this.words.push(textOf(middle, y + high / 2 + size * 0.36, words, size, `text-anchor="middle" fill="${ink}"`));
      }
    }
  }

  /** The middle of a bar, or where it has words so wide that lie on no arrow. */
  clearOf({ a, b }, half) {
    const middles = [1 / 2, 1 / 4, 3 / 4].map((share) => a + share * (b - a));
    const isClear = (at) =>
      a < at - half && at + half < b && this.crossed.every((ends) => ends.every((end) => Math.abs(end - at) > half));
    return (half && middles.find(isClear)) || middles[0];
  }

  colourOf = (category) => (category === NAMED ? "#9aa5b1" : this.state.theme.colours[category]);

  bar({ a, b, y, high, category, words }) {
    const wide = b - a;
    const isStill = category === STILL;
    const space = wide > 9 && !isStill ? 2 : 0; // between one and the next
    if (isStill) this.still(a, y, wide, high, words);
    else this.add(rectOf(a, y, wide - space, high, `${this.round}fill="${this.colourOf(category)}"`));
    this.seen.set(words, [category, (this.seen.get(words)?.[1] ?? 0) + wide]);
  }

  /** Where nothing is done: as schedules draw it, or a little darker where a rank waits. */
  still(x, y, wide, high, words) {
    const { colours, band, edge, paper } = this.state.theme;
    const [ground, ink] = words === "idle" ? [paper, edge] : [band, colours[STILL]];
    this.add(rectOf(x, y, wide, high, `fill="${ground}"`));
    if (wide > 4) this.add(hatch(x, y, wide, high, ink));
  }

  /** What every colour means, where a bar leaves one open: entries of [words, category]. */
  key() {
    if (this.arePipelines) {
      const letters = { forward: "0", backward: "B0" };
      const lettersOf = (name) => (this.isOneBatch ? "" : letters[name]);
      const names = this.state.runs[0].categories.map(([name]) => (name === "compute" ? "forward" : name));
      const drawn = [...new Set([...this.seen.values()].map(([category]) => category))].sort((a, b) => a - b);
      const all = drawn.filter((category) => category !== STILL && letters[names[category]]);
      return [...all.map((each) => [names[each], [each], lettersOf(names[each])]), ["idle", [STILL], ""]];
    }
    const most = Math.max(...[...this.seen.values()].map(([, wide]) => wide), 1);
    const drawn = [...this.seen].filter(([, [, wide]]) => wide > 0.015 * most);
    if (drawn.every(([words]) => this.named.has(words) && !this.untold.has(words))) return [];
    const byColour = new Map();
    for (const [words, [category]] of drawn) byColour.set(category, [...(byColour.get(category) ?? []), words]);
    const order = ([category]) => (category === STILL ? Infinity : category);
    const entries = [...byColour].sort((one, other) => order(one) - order(other));
    return entries.map(([category, words]) => [words.slice(0, MOST_WORDS).join(", "), [category]]);
  }

  writeKey(y) {
    const sizes = [NAMES, 38, 34, 30, 26];
    const entries = this.key();
    const wideIn = (size) => entries.reduce((sum, [words]) => sum + 92 + widthIn(words, size), 0);
    const size = sizes.find((each) => wideIn(each) < this.width + 40) ?? sizes.at(-1);
    let x = 4;
    for (const [words, [category], letters] of entries) {
      const [top, wide, high] = this.arePipelines ? [y - 33, 62, 41] : [y - 24, 40, 28];
      if (category === STILL) this.still(x, top, wide, high, words);
      else this.add(rectOf(x, top, wide, high, `${this.round}fill="${this.colourOf(category)}"`));
      if (letters) {
        const look = `text-anchor="middle" fill="${this.state.theme.onBar[category]}"`;
        this.add(textOf(x + wide / 2, y, letters, WORDS, look));
      }
      this.add(textOf(x + wide + 12, y, words, size, `fill="${this.ink}"`));
      x += wide + 52 + widthIn(words, size);
    }
  }
}

globalThis.slideBars = {
  NAMES,
  NAMED,
  WORDS,
  TICKS,
  STILL,
  Drawing,
  barsOf,
  escaped,
  eventsOf,
  isPipeline,
  rectOf,
  textOf,
  widthIn,
};
