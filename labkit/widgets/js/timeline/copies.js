// What moves bytes within a device, beside what computes.

import { isCopy, labelOf } from "./kinds.js";
import { eachWide } from "./paint_marks.js";

/** Paint what copies grey in a row of computing. */
export function paintCopies(context, state, place) {
  eachWide(state, place, 1, (event, x, wide) => {
    if (!isCopy(labelOf(state.runs[place.run], event))) return;
    const [left, right] = [x, x + wide].map(Math.round);
    context.fillRect(left, place.y, right - left, place.bar);
    state.marks.add("copy");
  });
}
