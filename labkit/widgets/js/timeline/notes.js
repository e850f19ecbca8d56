// Of two runs: how much the rank with most bytes sends and receives, and with whom each one does where that is one.

import { COMMUNICATION } from "./kinds.js";
import { LEFT, RIGHT, holdsNames, shiftOf, xOf } from "./layout.js";
import { bytesText } from "./words.js";

const APART = 10; // pixels from the end of a run to the words
const notes = new WeakMap(); // by row, and by run

/** "to rank 1": events of one kind with one peer, all of one size; else undefined. */
function oneWay(run, row, kinds, way) {
  let [count, size, peer] = [0, -1, -1];
  for (let i = row.first; i < row.last; i++) {
    const [, kind, , other] = run.labels[run.label[i]];
    if (!kinds.test(kind)) continue;
    if (count && (other !== peer || run.bytes[i] !== size)) return undefined;
    [count, size, peer] = [count + 1, run.bytes[i], other];
  }
  return count && peer >= 0 ? `${way} rank ${peer}` : undefined;
}

function noteOf(run, row) {
  if (!notes.has(row)) {
    const ways = [oneWay(run, row, /^i?send$/, "to"), oneWay(run, row, /^i?recv$/, "from")];
    notes.set(row, ways.every(Boolean) ? ways.join(", ") : "");
  }
  return notes.get(row);
}

/** "7 × 16 MB": how many calls of one kind a rank makes, all of one size; else undefined. */
function bytesOfKind(run, { first, last }, kinds) {
  let [count, size] = [0, -1];
  for (let i = first; i < last; i++) {
    if (!kinds.test(run.labels[run.label[i]][1])) continue;
    if (count && run.bytes[i] !== size) return undefined;
    [count, size] = [count + 1, run.bytes[i]];
  }
  return count && size > 0 ? [count * size, `${count} × ${bytesText(size)}`] : undefined;
}

/** "rank 0: 7 × 16 MB in, 7 × 16 MB out", of who moves most, or "each rank: ..."; "" where calls differ in size. */
function mostBytes(run) {
  const told = [...run.ranks.values()].map(({ rank, lanes }) => {
    const row = lanes[COMMUNICATION];
    const ways = row ? [/^i?recv$/, /^i?send$/].map((kinds) => bytesOfKind(run, row, kinds)) : [];
    if (!ways.length || !ways.every(Boolean)) return [rank, -1, ""];
    const [[received, into], [sent, out]] = ways;
    return [rank, received + sent, `${into} in, ${out} out`];
  });
  const [rank, most, words] = told.reduce((a, b) => (b[1] > a[1] ? b : a));
  if (most < 0 || told.some(([, sum]) => sum < 0)) return "";
  return `${told.every((each) => each[2] === words) ? "each rank" : `rank ${rank}`}: ${words}`;
}

const ENDS = 90; // pixels of how long a run is, beside its end

/** Write beside the names of two runs how many bytes go through one rank. */
function paintBytes(context, state) {
  state.layout.heads.forEach(({ y }, number) => {
    const run = state.runs[number];
    if (!notes.has(run)) notes.set(run, mostBytes(run));
    const end = Math.min(xOf(state, run.span + shiftOf(state, number)), state.width - RIGHT);
    const words = notes.get(run);
    if (LEFT + 4 + context.measureText(words).width < end - ENDS) context.fillText(words, LEFT + 4, y + 8);
  });
}

/** Write that beside the rows of two runs, where it has room. */
export function paintNotes(context, state) {
  if (state.runs.length < 2 || state.overlay) return;
  context.fillStyle = state.theme.quiet;
  context.textAlign = "left";
  if (!state.strips) paintBytes(context, state);
  for (const { run: number, row, y, bar } of state.layout.rows) {
    if (row.lane !== COMMUNICATION || !holdsNames(bar)) continue;
    const run = state.runs[number];
    const words = noteOf(run, row);
    const x = xOf(state, run.span + shiftOf(state, number)) + APART;
    if (words && x + context.measureText(words).width < state.width - RIGHT) context.fillText(words, x, y + bar / 2);
  }
}
