// Beside the end of a run that is shorter than the one it stands beside: with whom each rank exchanges how much.

import { COMMUNICATION } from "./kinds.js";
import { RIGHT, holdsNames, shiftOf, xOf } from "./layout.js";
import { bytesText } from "./words.js";

const APART = 10; // pixels from the end of a run to the words
const notes = new WeakMap(); // by row

/** "14 × 2 MB to rank 1": events of one kind with one peer, all of one size; else undefined. */
function oneWay(run, row, kinds, way) {
  let [count, size, peer] = [0, -1, -1];
  for (let i = row.first; i < row.last; i++) {
    const [, kind, , other] = run.labels[run.label[i]];
    if (!kinds.test(kind)) continue;
    if (count && (other !== peer || run.bytes[i] !== size)) return undefined;
    [count, size, peer] = [count + 1, run.bytes[i], other];
  }
  return count && peer >= 0 ? `${count} × ${bytesText(size)} ${way} rank ${peer}` : undefined;
}

function noteOf(run, row) {
  if (!notes.has(row)) {
    const ways = [oneWay(run, row, /^i?send$/, "to"), oneWay(run, row, /^i?recv$/, "from")];
    notes.set(row, ways.every(Boolean) ? ways.join(", ") : "");
  }
  return notes.get(row);
}

/** Write that beside the rows of two runs, where it has room. */
export function paintNotes(context, state) {
  if (state.runs.length < 2 || state.overlay) return;
  context.fillStyle = state.theme.quiet;
  context.textAlign = "left";
  for (const { run: number, row, y, bar } of state.layout.rows) {
    if (row.lane !== COMMUNICATION || !holdsNames(bar)) continue;
    const run = state.runs[number];
    const words = noteOf(run, row);
    const x = xOf(state, run.span + shiftOf(state, number)) + APART;
    if (words && x + context.measureText(words).width < state.width - RIGHT) context.fillText(words, x, y + bar / 2);
  }
}
