// Rows, put under each other: lanes, memory, and words where ranks are left out.

import { areColoured, bareLanes, isNearlyBare } from "./bare.js";
import { standouts } from "./cluster.js";
import { COMMUNICATION, COMPUTE, REGION } from "./kinds.js";
import { lateRanks } from "./last_ranks.js";
import { NAMED, PLAIN, TOP, hasTracks, hiddenRanks, holdsNames, namesOf, shownFor, untold } from "./layout.js";
import { stripOf } from "./strips.js";

function gapsOf(bar, isBeside) {
  if (bar >= PLAIN) return { lane: 2, rank: 9 };
  if (bar >= NAMED) return { lane: 1, rank: isBeside ? 6 : 4 };
  return bar >= 6 ? { lane: 1, rank: 5 } : { lane: 0, rank: 3 };
}

/** Pixels between the rows of two streams, for arrows from one to the other. */
const ROOM_OF_ARROWS = 9;

/** How high a track is beside a row. */
const LOWER = 0.85;

/** Pixels in place of ranks that are alike, for words and messages. */
const GAP = 34;

/** Pixels beside a row of who waits, where no arrow from who is late goes through, for words. */
const NOTE = 15;
const NARROW = 500; // pixels of a picture that may have no room for words over waits

/** Pixels of a row in which next to nothing is. */
const BARE = 3;

/** Pixels of the row that stands for a run. */
const STRIP_BAR = 72;

/** Puts rows under each other. */
export class Stack {
  constructor(bar, state) {
    this.state = state;
    this.bar = bar;
    this.isBeside = state.runs.length > 1;
    this.gaps = gapsOf(bar, this.isBeside);
    this.y = TOP;
    this.rows = [];
    this.memories = [];
    this.heads = [];
    this.gapsIn = [];
    this.without = []; // of each run the ranks whose lane of computing is left out
  }

  /** Words in place of the others that are alike, where several of these have rows, before the last of them. */
  tellAlike({ alike = [], each = 1 }, rank, run) {
    const group = each > 1 && alike.find((ranks) => ranks[each - 2] === rank);
    if (!group || group.length <= each) return;
    const text = `▸ ${namesOf(untold(group, each))} alike`;
    this.gapsIn.push({ y: this.y + (GAP - NAMED - this.gaps.rank) / 2, text, run });
    this.y += GAP;
  }

  head(text, tall = 18) {
    this.heads.push({ y: this.y, text });
    this.y += tall;
  }

  /** A rank's memory under its lanes, where it was asked for and is high enough to be read. */
  memory(run, rank, number, bar) {
    if (!this.state.memory || !holdsNames(bar) || !run.memory.includes(rank)) return;
    const height = bar + 4;
    this.memories.push({ run: number, rank, y: this.y, height });
    this.y += height + this.gaps.lane;
  }

  /** A row; of two tracks, each nearly as high as any other, where that holds a name. */
  put(run, row, high, first) {
    const bar = holdsNames(high) && hasTracks(this.state, row) ? 2 * Math.max(NAMED, Math.round(high * LOWER)) : high;
    this.rows.push({ run, row, y: this.y, bar, first });
    this.y += bar;
  }

  /** The rows of one run, rank under rank. */
  run(run, number, isFolded) {
    const hidden = isFolded ? hiddenRanks(run) : new Set();
    const high = this.bar;
    const hasNames = this.state.spans || !areColoured(run);
    let shown = run.rows.filter(({ rank, lane }) => !hidden.has(rank) && (lane !== REGION || hasNames));
    const lanes = bareLanes(run);
    const late = lateRanks(run);
    const isWide = this.state.width > NARROW || !(this.state.mute || this.isBeside);
    const isNear = (row) => lanes.has(row.lane) || (this.isBeside && isNearlyBare(run, row));
    const isBare = (row) => !row.stream && holdsNames(this.bar) && isNear(row);
    const isAlone = (row) => shown.every((other) => other.rank !== row.rank || isBare(other));
    if (this.isBeside) {
      const without = shown.filter((row) => isBare(row) && !isAlone(row)); // a line of it would need words
      shown = shown.filter((row) => !without.includes(row));
      this.without[number] = without.filter(({ lane }) => lane === COMPUTE).map(({ rank }) => rank);
    }
    shown.forEach((row, k) => {
      const isFirst = shown.slice(0, k).every((other) => other.rank !== row.rank || isBare(other));
      const isTold =
        late.length && !late.includes(row.rank) && row.lane === COMMUNICATION && holdsNames(high) && isWide;
      const isOver = isTold && row.rank < late[0];
      if (isOver) this.y += NOTE;
      this.put(number, row, isBare(row) ? BARE : high, isFirst && !isBare(row));
      if (isTold) this.rows.at(-1).note = this.y + NOTE / 2 - (isOver ? high + NOTE : 0);
      if (isTold && !isOver) this.y += NOTE;
      this.y += row.stream && holdsNames(this.bar) ? ROOM_OF_ARROWS : this.gaps.lane;
      if (shown[k + 1]?.rank === row.rank) return;
      this.memory(run, row.rank, number, this.bar);
      this.y += this.gaps.rank;
      if (isFolded) this.tellAlike(run, row.rank, number);
    });
  }

  /** One row a rank with its communication thin beneath it: first those who stand out, high, then all others. */
  cluster(run, number, isFolded) {
    const hidden = isFolded ? hiddenRanks(run) : new Set();
    const told = new Set();
    for (const [words, ranks] of standouts(run)) {
      const own = [...new Set(ranks.map((rank) => (isFolded ? shownFor(run, rank) : rank)))];
      const fresh = own.filter((rank) => !told.has(rank));
      if (!fresh.length) continue;
      this.head(words);
      for (const rank of fresh) this.rank(run, number, rank, Math.max(this.bar, PLAIN));
      fresh.forEach((rank) => told.add(rank));
      this.y += this.gaps.rank;
    }
    if (told.size) this.head("the others");
    told.forEach((rank) => hidden.add(rank));
    this.ranks(run, number, hidden);
  }

  /** One row a rank, and nothing apart. */
  plain(run, number, isFolded) {
    const hidden = isFolded ? hiddenRanks(run) : new Set();
    this.ranks(run, number, hidden);
  }

  /** One row for each rank that is not hidden. */
  ranks(run, number, hidden) {
    for (const rank of run.ranks.keys()) {
      if (!hidden.has(rank)) this.rank(run, number, rank, this.bar);
    }
  }

  /** One row for all ranks. */
  strip(run, number) {
    this.put(number, stripOf(run), STRIP_BAR, true);
    this.y += this.gaps.rank;
  }

  rank(run, number, rank, bar) {
    const { lanes } = run.ranks.get(rank);
    const [work, calls] = [lanes[COMPUTE], lanes[COMMUNICATION]];
    if (work) this.put(number, work, bar, true);
    if (calls) this.put(number, calls, work ? Math.max(2, Math.round(bar / 3)) : bar, !work);
    this.memory(run, rank, number, bar);
    this.y += 2;
  }
}
