// Of two runs: how much the rank with most bytes sends and receives.

import { COMMUNICATION, labelOf } from "./kinds.js";
import { LEFT, ranksText, xIn } from "./layout.js";
import { once } from "./once.js";
import { bytesText } from "./words.js";

/** "7 × 16 MB": how many calls of one kind a rank makes, all of one size; else undefined. */
function bytesOfKind(run, { first, last }, kinds) {
  let [count, size] = [0, -1];
  for (let i = first; i < last; i++) {
    if (!kinds.test(labelOf(run, i)[1])) continue;
    if (count && run.bytes[i] !== size) return undefined;
    [count, size] = [count + 1, run.bytes[i]];
  }
  return count && size > 0 ? [count * size, `${count} × ${bytesText(size)}`] : undefined;
}

/** "rank 0: 7 × 16 MB in, 7 × 16 MB out", of who moves most, or "each rank: ..."; "" where calls differ in size. */
const mostBytes = once((run) => {
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
});

const BOLDER = 1.3; // times as wide as words are names of runs, at most, with what is beside them
const ENDS = 90; // pixels of how long a run is, beside its end

/** Write beside the names of two runs how many bytes go through one rank. */
function paintBytes(context, state) {
  state.layout.heads.forEach(({ y }, number) => {
    const run = state.runs[number];
    const end = Math.min(xIn(state, number, run.span), state.right);
    const ranks = state.layout.without[number] ?? [];
    const few = ranks.length ? `; ranks ${ranksText(ranks)} compute for less than 2 % of the time: not drawn` : "";
    const left = Math.max(LEFT, BOLDER * context.measureText(run.name).width);
    const holds = (text) => left + 4 + context.measureText(text).width <= end - ENDS;
    const words = [`${mostBytes(run)}${few}`, mostBytes(run)].find(holds);
    if (!words) return;
    const wide = context.measureText(words).width;
    context.fillStyle = state.theme.paper; // no line of the axis goes through words
    context.fillRect(left + 2, y + 1, wide + 4, 15);
    context.fillStyle = state.theme.quiet;
    context.fillText(words, left + 4, y + 8);
  });
}

/** Write that beside the names of two runs, and by how much the second is shorter. */
export function paintNotes(context, state) {
  if (state.runs.length < 2 || state.overlay) return;
  context.fillStyle = state.theme.quiet;
  context.textAlign = "left";
  if (!state.strips) paintBytes(context, state);
}
