// Waits of streams for each other, as arrows from the row of the span that was waited for.

import { placeOf, windowOf, xIn } from "./layout.js";
import { arrow } from "./paint_arrows.js";

const APART = 12; // pixels from one to the next on the average, at least: nearer ones cannot be told apart

/** The waits of a run that are drawn: those that end in view, or of too many those of an event. */
export function heldInView(state, number) {
  const { held_until: until = [], held_from: from, held_to: to } = state.runs[number];
  const [t0, t1] = windowOf(state, number);
  const isShown = (k) => until[k] >= t0 && until[k] <= t1 && placeOf(state, number, to[k]);
  const found = [...until.keys()].filter(isShown);
  if (found.length * APART <= state.width * state.layout.rows.filter(({ first }) => first).length) return found;
  const event = state.focus?.run === number ? state.focus.event : -1;
  return found.filter((k) => to[k] === event || from[k] === event);
}

/** Draw them, where streams have rows. */
export function paintHeld(context, state) {
  state.runs.forEach((run, number) => {
    if (!run.lanesOf) return;
    context.strokeStyle = state.theme.ink;
    context.fillStyle = state.theme.ink;
    for (const k of heldInView(state, number)) {
      const [from, to] = [run.held_from[k], run.held_to[k]].map((event) => placeOf(state, number, event));
      if (!from || from === to) continue;
      const x = xIn(state, number, run.held_until[k]);
      const isDown = to.y > from.y;
      state.marks.add("held");
      arrow(context, x, from.y + (isDown ? from.bar : 0), x, to.y + (isDown ? 0 : to.bar), 1);
    }
  });
}
