// Messages, as arrows from where their last byte leaves to where it arrives.

import { enlargedOf } from "./enlarged.js";
import { labelOf } from "./kinds.js";
import { pixelOf, placeOf, windowOf, xIn } from "./layout.js";
import { lowerBound } from "./search.js";

const MOST = 300;
const APART = 14; // pixels, of two runs: what a rank sends in less is drawn over what it sends next
const BEFORE = 4; // pixels before the line of a run's end, which would hide an arrow's head

/** An arrow with its head at the second point, set off from what it crosses by a ground. */
export function arrow(context, x0, y0, x1, y1, thick, ground) {
  const angle = Math.atan2(y1 - y0, x1 - x0);
  const colour = context.strokeStyle;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  for (const [each, wide] of [
    [ground, thick + 2],
    [colour, thick],
  ]) {
    if (!each) continue;
    context.strokeStyle = each;
    context.lineWidth = wide;
    context.stroke();
  }
  context.beginPath();
  context.moveTo(x1, y1);
  for (const side of [-0.4, 0.4]) context.lineTo(x1 - 7 * Math.cos(angle + side), y1 - 7 * Math.sin(angle + side));
  context.fill();
  context.lineWidth = 1;
}

/** The messages of a run in view, at most one more than are drawn. */
function messagesInView(state, number) {
  const run = state.runs[number];
  const [t0, t1] = windowOf(state, number);
  const found = [];
  for (let f = 0; f < run.flow_from.length && found.length <= MOST; f++) {
    if (run.start[run.flow_from[f]] < t1 && run.end[run.flow_to[f]] > t0) found.push(f);
  }
  return found;
}

/** When bytes of a call began to move and when the last had come; all of its time where nothing else is known. */
function solidOf(run, event) {
  const { cut_event: cuts = [], cut_start: starts, cut_end: ends } = run;
  let [from, until] = [Infinity, -Infinity];
  for (let cut = lowerBound(cuts, 0, cuts.length, event); cuts[cut] === event; cut++) {
    if (ends[cut] <= starts[cut]) continue;
    from = Math.min(from, starts[cut]);
    until = Math.max(until, ends[cut]);
  }
  return from < until ? [from, until] : [run.start[event], run.end[event]];
}

/** Grey where a message would go back in time by less than the clocks' error, red where by more. */
function colourOf(theme, back, error) {
  if (back > error) return theme.alarm;
  return back > 0 ? theme.quiet : theme.arrow;
}

/** Draw message f of a run; where both its ranks have rows: [[x, x], ns, y] of its last byte, y of the middle. */
export function paintMessage(context, state, number, f, thick) {
  const run = state.runs[number];
  const [source, target] = [run.flow_from[f], run.flow_to[f]];
  const [from, to] = [source, target].map((event) => placeOf(state, number, event));
  if (!from || !to) return undefined;
  const isServed = labelOf(run, target)[1] === "rpc_serve";
  const [begins, over] = solidOf(run, source);
  const arrives = isServed ? run.start[target] : solidOf(run, target)[1];
  const leaves = isServed ? begins : Math.max(begins, Math.min(over, arrives)); // its last byte
  const error = Math.max(...[from, to].map(({ row }) => run.errorOf(row.rank)));
  const colour = colourOf(state.theme, begins - arrives, error);
  state.marks.add(colour === state.theme.alarm ? "early" : "message");
  context.strokeStyle = colour;
  context.fillStyle = colour;
  const isDown = to.y > from.y;
  const y0 = from.y + (isDown ? from.bar : 0);
  const y1 = to.y + (isDown ? 0 : to.bar);
  const ground = thick > 1 && state.theme.paper;
  const x0 = xIn(state, number, leaves);
  const x1 = xIn(state, number, arrives) - (arrives < run.span ? 0 : BEFORE);
  arrow(context, x0, y0, x1, y1, thick, ground);
  return [[x0, x1], arrives - leaves, (y0 + y1) / 2];
}

/** Draw the messages in view; where they are many, only those of the event in focus. */
export function paintArrows(context, state) {
  const { runs, focus, layout } = state;
  state.crowded = false;
  runs.forEach((run, number) => {
    const inView = messagesInView(state, number);
    const ofFocus = focus?.run === number ? (run.flowsOf.get(focus.event) ?? []) : [];
    const isDense = runs.length > 1 && run.span * run.ranks.size < APART * pixelOf(state) * run.flow_from.length;
    const isCrowded = isDense || inView.length > MOST || layout.bar < 8;
    state.crowded ||= isCrowded;
    const isElsewhere = number > 0 && enlargedOf(state); // there they can be told apart
    for (const f of isCrowded || isElsewhere ? ofFocus : inView) {
      paintMessage(context, state, number, f, ofFocus.includes(f) || (runs.length > 1 && run.each === 1) ? 2 : 1);
    }
  });
}
