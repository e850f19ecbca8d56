// The strip below the picture: each whole run small, one under the other, with the part in view marked.

import { BLOCKED } from "./kinds.js";
import { LEFT, STRIP, windowOf, wholeOf, xOf } from "./layout.js";
import { begin } from "./paint.js";
import { shareMatrix } from "./shares.js";
import { unsplit } from "./unsplit.js";

export function paintOverview(context, state) {
  const { theme, runs } = state;
  const high = STRIP / runs.length;
  begin(context, state, STRIP, paintBusy);
  const [a, b] = state.view.map((time) => xOf(wholeOf(state), time));
  context.fillStyle = theme.selection;
  context.fillRect(a, 0, Math.max(b - a, 2), STRIP);
  context.strokeStyle = theme.quiet;
  context.strokeRect(a + 0.5, 0.5, Math.max(b - a - 1, 2), STRIP - 1);
  context.fillStyle = theme.quiet;
  context.textAlign = "right";
  runs.forEach(({ name }, number) => {
    context.fillText(name || "whole run", LEFT - 5, high * (number + 0.5), LEFT - 9);
  });
}

/** What share of its computing and communicating rows a run fills with work in every pixel column. */
function busyColumns(run, t0, t1, columns) {
  const rows = run.rows.filter(({ lane }) => lane < 2);
  const categories = run.categories.length;
  const shares = new Float64Array(columns * categories);
  for (const row of rows) shareMatrix(run, row, t0, t1, columns, categories, shares);
  return Float64Array.from({ length: columns }, (_, x) => {
    let busy = 0;
    for (let c = 0; c < categories; c++) if (c !== BLOCKED) busy += shares[x * categories + c];
    return busy / rows.length;
  });
}

/** Paint that of each run; it is computed anew only where runs, offset or room changed. */
function paintBusy(context, state) {
  const { right, ratio, theme, runs, whole, offset } = state;
  const high = (STRIP / runs.length) * ratio;
  const columns = Math.max(Math.round((right - LEFT) * ratio), 1);
  const left = Math.round(LEFT * ratio);
  const key = [columns, whole, offset, ...runs.map((run) => run.start.length)].join();
  if (state.overviewOf !== key) {
    state.overviewOf = key;
    const all = wholeOf(state);
    state.overviewBusy = runs.map((run, number) => busyColumns(unsplit(run), ...windowOf(all, number), columns));
  }
  context.fillStyle = theme.quiet;
  state.overviewBusy.forEach((shares, number) => {
    shares.forEach((share, x) => {
      const tall = (high - 4 * ratio) * share;
      context.fillRect(left + x, high * (number + 1) - 2 * ratio - tall, 1, tall);
    });
  });
}
