// Ranks that are alike: one row for all of them, or one for each; and how high rows are.

import { rowOf } from "./complete.js";
import { REGION } from "./kinds.js";
import { hiddenRanks, placeOf, ranksText } from "./layout.js";

const TALLEST = 8; // times as high as rows are at first

/** Make rows `factor` times as high, around a height of the picture that is seen. */
export function stretch(view, factor, y = view.plot.clientHeight / 2) {
  const { state, plot } = view;
  const before = state.tall;
  const top = plot.scrollTop;
  state.tall = Math.min(Math.max(before * factor, 1), TALLEST);
  view.resize();
  plot.scrollTop = ((top + y) * state.tall) / before - y;
}

/** Show one of the ranks that are alike, or all of them. */
export function fold(view) {
  const { state } = view;
  const alike = state.runs.flatMap((run) => run.alike ?? []);
  if (!alike.length) return;
  state.folded = !state.folded;
  state.focus = null;
  view.resize();
  const words = alike.map((group) => `ranks ${ranksText(group)}`).join("; ");
  view.say(state.folded ? `Folded, because they do the same at the same time: ${words}.` : `Unfolded: ${words}.`);
}

/** Unfold where an event's rank is not shown. */
export function unfoldFor(view, run, event) {
  const { runs, folded, focus } = view.state;
  if (rowOf(runs[run], event)?.lane === REGION && !placeOf(view.state, run, event)) {
    view.state.spans = true;
    view.resize();
  }
  if (!folded || !hiddenRanks(runs[run]).has(rowOf(runs[run], event)?.rank)) return;
  fold(view);
  view.state.focus = focus;
}
