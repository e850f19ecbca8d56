// Steps of a run: each ends with a region called optimizer.

import { REGION, labelOf } from "./kinds.js";
import { TOP, isZoomed, within, xOf } from "./layout.js";
import { once } from "./once.js";
import { widthOf } from "./paint_marks.js";

const TOGETHER = 0.05; // of a step, within which all ranks end it
const ROOM = 16; // pixels above the rows
const APART = 8; // pixels of a step, at least

/** When the regions of a row called optimizer end, after when the first of its regions begins. */
function edgesOf(run, { first, last }) {
  const edges = [run.start[first]];
  for (let i = first; i < last; i++) if (labelOf(run, i)[0] === "optimizer") edges.push(run.end[i]);
  return edges;
}

/** When each rank's first step begins and its steps end, of those that have any. */
const edgesOfRanks = once((run) => {
  const rows = run.rows.filter(({ lane, first, last }) => lane === REGION && last > first);
  return rows.map((row) => edgesOf(run, row)).filter((edges) => edges.length > 1);
});

/** When the first of them begins and each ends, where they begin and end on all ranks together; else undefined. */
export function stepEdges(run) {
  const [one = [], ...others] = edgesOfRanks(run);
  const least = (TOGETHER * (one.at(-1) - one[0])) / (one.length - 1);
  const isNear = (edge, k) => k === 0 || Math.abs(edge - one[k]) <= least;
  const areTogether = others.every((edges) => edges.length === one.length && edges.every(isNear));
  return one.length > 2 && areTogether ? one : undefined;
}

/** Pixels above the rows of a run for the names of its steps. */
export const roomForSteps = ({ runs }) => (stepEdges(runs[0]) ? ROOM : 0);

/** Whether a title speaks of every step: then the first stands for all. */
export const isOfSteps = (title) => / every step /.test(title);

/** Draw a bracket over each step, with its name in it, and lines where it begins and ends. */
export function paintSteps(context, state) {
  if (!state.layout.hasSteps) return;
  const { right: end, layout, theme } = state;
  const edges = stepEdges(state.runs[0]).map((time) => Math.round(xOf(state, time)));
  context.textAlign = "center";
  edges.slice(1).forEach((to, k, { length }) => {
    const from = edges[k];
    if (to - from < APART) return;
    context.fillStyle = theme.edge;
    context.fillRect(from, TOP + 6, to - from, 1);
    for (const x of [from, Math.min(to, end - 1)]) context.fillRect(x, TOP, 1, layout.height - TOP);
    const [left, right] = within(state, from, to);
    const number = k + 1;
    const words = [`step ${number} of ${length}`, `step ${number}`, `${number}`]
      .slice(isZoomed(state) ? 0 : 1)
      .find((each) => widthOf(context, state, each) + 16 < right - left);
    if (!words) return;
    const [x, half] = [(left + right) / 2, widthOf(context, state, words) / 2 + 5];
    context.fillStyle = theme.paper;
    context.fillRect(x - half, TOP, 2 * half, 13);
    context.fillStyle = theme.ink;
    context.fillText(words, x, TOP + 6);
  });
}
