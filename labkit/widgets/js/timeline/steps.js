// Steps of a run: each ends with a region called optimizer.

import { REGION } from "./kinds.js";
import { LEFT, RIGHT, TOP, xOf } from "./layout.js";
import { widthOf } from "./paint_marks.js";

const TOGETHER = 0.05; // of a step, within which all ranks end it
const ROOM = 13; // pixels above the rows
const APART = 8; // pixels of a step, at least

const known = new WeakMap(); // by run

/** When the regions of a row called optimizer end. */
function endsOf(run, { first, last }) {
  const ends = [];
  for (let i = first; i < last; i++) if (run.labels[run.label[i]][0] === "optimizer") ends.push(run.end[i]);
  return ends;
}

/** When each rank's steps end, of those that have any. */
function allEnds(run) {
  if (!known.has(run)) {
    const rows = run.rows.filter(({ lane }) => lane === REGION);
    known.set(
      run,
      rows.map((row) => endsOf(run, row)).filter((ends) => ends.length),
    );
  }
  return known.get(run);
}

/** When the steps of the first rank that has any end. */
export const stepEnds = (run) => allEnds(run)[0] ?? [];

/** Whether a run has steps that begin and end on all ranks together. */
function areTogether(run) {
  const [one = [], ...others] = allEnds(run);
  const isNear = (end, k, { [k - 1]: begin = 0 }) => Math.abs(end - one[k]) <= TOGETHER * (end - begin);
  return one.length > 1 && others.every((ends) => ends.length === one.length && ends.every(isNear));
}

/** Pixels above the rows of a run for the names of its steps. */
export const roomForSteps = ({ runs, few }) => (!few && areTogether(runs[0]) ? ROOM : 0);

/** Draw a line where a step ends and the next begins, and their names above the rows. */
export function paintSteps(context, state) {
  if (!state.layout.hasSteps) return;
  const { width, layout, theme } = state;
  const ends = stepEnds(state.runs[0]);
  context.textAlign = "left";
  ends.forEach((end, k) => {
    const [from, to] = [ends[k - 1] ?? 0, end].map((time) => xOf(state, time));
    if (to - from < APART) return;
    context.fillStyle = theme.edge;
    if (k + 1 < ends.length) context.fillRect(Math.round(to), TOP, 1, layout.height - TOP);
    const [left, right] = [Math.max(from, LEFT), Math.min(to, width - RIGHT)];
    const words = [`step ${k + 1}`, `${k + 1}`].find((each) => widthOf(context, state, each) + 8 < right - left);
    context.fillStyle = theme.quiet;
    if (words) context.fillText(words, left + 4, TOP + 5);
  });
}
