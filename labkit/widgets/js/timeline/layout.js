// Where everything lies, in CSS pixels: rows from top to bottom, time from left to right.

export const LEFT = 112;
export const RIGHT = 54;
export const TOP = 22;
export const STRIP = 26;

/** Of a row: high enough for a name, for words beside it, and how far rows and ranks are apart. */
const NAMED = 12;
const BESIDE = 9;

/** Whether bars are high enough for words in them. */
export const holdsNames = (bar) => bar >= NAMED;

/** Whether they are for words beside them. */
export const holdsWords = (bar) => bar >= BESIDE;

function gapsOf(bar) {
  if (bar >= NAMED) return { lane: 2, rank: 9 };
  return bar >= 6 ? { lane: 1, rank: 5 } : { lane: 0, rank: 3 };
}

/** The ranks that are told by the first of those they are alike. */
export const hiddenRanks = ({ alike = [] }) => new Set(alike.flatMap(([, ...others]) => others));

/** The rank whose rows tell of a rank where those alike are folded. */
export const shownFor = ({ alike = [] }, rank) => alike.find((group) => group.includes(rank))?.[0] ?? rank;

/** Numbers of ranks in words: "0-7", "1, 4, 6". */
export function ranksText(ranks) {
  const isRow = ranks.every((rank, i) => rank === ranks[0] + i);
  if (isRow) return `${ranks[0]}-${ranks.at(-1)}`;
  return ranks.length > 4 ? `${ranks.slice(0, 3).join(", ")}, ...` : ranks.join(", ");
}

/** Puts rows under each other. */
class Stack {
  constructor(bar) {
    this.bar = bar;
    this.gaps = gapsOf(bar);
    this.y = TOP;
    this.rows = [];
    this.memories = [];
    this.heads = [];
  }

  head(text) {
    this.heads.push({ y: this.y, text });
    this.y += 18;
  }

  /** A rank's memory under its lanes. */
  memory(run, rank) {
    const height = this.bar + 4;
    this.memories.push({ run, rank, y: this.y, height });
    this.y += height + this.gaps.lane;
  }

  /** The rows of one run, rank under rank. */
  run(run, number, isFolded) {
    const hasMemory = (rank) => holdsNames(this.bar) && run.memory.includes(rank);
    let before = -1;
    const hidden = isFolded ? hiddenRanks(run) : new Set();
    for (const row of run.rows) {
      if (hidden.has(row.rank)) continue;
      const first = row.rank !== before;
      if (first && before >= 0) {
        if (hasMemory(before)) this.memory(number, before);
        this.y += this.gaps.rank;
      }
      before = row.rank;
      this.rows.push({ run: number, row, y: this.y, bar: this.bar, first });
      this.y += this.bar + this.gaps.lane;
    }
    if (before >= 0 && hasMemory(before)) this.memory(number, before);
    this.y += this.gaps.rank;
  }
}

/** Where every row lies: bars 3 to 16 high, a rank's memory under its lanes, run under run. */
export function layOut(runs, overlay, isFolded = false) {
  const shown = overlay ? runs.slice(0, 1) : runs;
  const isSeen = (run) => {
    const hidden = isFolded ? hiddenRanks(run) : new Set();
    return ({ rank }) => !hidden.has(rank);
  };
  const count = shown.reduce((sum, run) => sum + run.rows.filter(isSeen(run)).length, 0);
  const stack = new Stack(Math.max(3, Math.min(16, Math.floor(700 / Math.max(count, 1)) - 2)));
  shown.forEach((run, number) => {
    if (shown.length > 1) stack.head(run.name);
    stack.run(run, number, isFolded);
  });
  const { rows, memories, heads, bar, y } = stack;
  return { rows, memories, heads, bar, height: Math.max(y, TOP + 24) };
}

/** By how much a run is shifted: one shown beside another by its offset. */
export const shiftOf = (state, run) => (run ? state.offset : 0);

/** The part of a run that is in view. */
export const windowOf = (state, run) => state.view.map((time) => time - shiftOf(state, run));

/**
 * That part of it in which the run had begun and not ended, where it stands beside another: a shorter run is not idle
 * after its end.
 */
export function ownWindow(state, run) {
  const [a, b] = windowOf(state, run);
  if (state.runs.length < 2) return [a, b];
  const { span } = state.runs[run];
  const from = Math.min(Math.max(a, 0), span);
  return [from, Math.max(Math.min(b, span), from)];
}

/** How many ns a pixel stands for. */
export const pixelOf = ({ view, width }) => (view[1] - view[0]) / (width - LEFT - RIGHT);

/** Where a time lies. */
export const xOf = (state, time) => LEFT + (time - state.view[0]) / pixelOf(state);

/** Which time lies there. */
export const timeOf = (state, x) => state.view[0] + (x - LEFT) * pixelOf(state);

/** A state in which the whole lies in view, as the strip shows it. */
export const wholeOf = (state) => ({ ...state, view: state.whole });

/** Where the row of an event lies, if it has one. */
export const placeOf = (state, run, event) =>
  state.layout.rows.find((place) => place.run === run && event >= place.row.first && event < place.row.last);
