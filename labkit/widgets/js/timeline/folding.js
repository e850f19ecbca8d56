// Ranks that are alike: one row for all of them, or one for each.

import { rowOf } from "./complete.js";
import { hiddenRanks, ranksText } from "./layout.js";

/** Show one of the ranks that are alike, or all of them. */
export function fold(view) {
  const { state } = view;
  const alike = state.runs.flatMap((run) => run.alike ?? []);
  if (!alike.length) return;
  state.folded = !state.folded;
  state.focus = null;
  view.resize();
  const words = alike.map((group) => `ranks ${ranksText(group)}`).join("; ");
  view.say(state.folded ? `Folded, for they are alike: ${words}.` : `Unfolded: ${words}.`);
}

/** Unfold where an event's rank is not shown. */
export function unfoldFor(view, run, event) {
  const { runs, folded, focus } = view.state;
  if (!folded || !hiddenRanks(runs[run]).has(rowOf(runs[run], event)?.rank)) return;
  fold(view);
  view.state.focus = focus;
}
