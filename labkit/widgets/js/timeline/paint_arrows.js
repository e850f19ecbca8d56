// Messages, as arrows from where their last byte leaves to where it arrives.

import { enlargedOf } from "./enlarged.js";
import { shiftOf, windowOf, xOf } from "./layout.js";
import { lowerBound } from "./search.js";

const MOST = 300;

/** An arrow with its head at the second point. */
export function arrow(context, x0, y0, x1, y1, thick) {
  const angle = Math.atan2(y1 - y0, x1 - x0);
  context.lineWidth = thick;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
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

/** The rows of an event, from top to bottom. */
const placesOf = ({ layout }, run, event) =>
  layout.rows.filter((place) => place.run === run && event >= place.row.first && event < place.row.last);

/** Draw message f of a run. */
export function paintMessage(context, state, number, f, thick) {
  const run = state.runs[number];
  const [source, target] = [run.flow_from[f], run.flow_to[f]];
  const [from] = placesOf(state, number, source);
  const to = placesOf(state, number, target).at(-1); // a rank may have a row above and one below, as a ring goes on
  if (!from || !to) return;
  const isServed = run.labels[run.label[target]][1] === "rpc_serve";
  const [begins, over] = solidOf(run, source);
  const arrives = isServed ? run.start[target] : solidOf(run, target)[1];
  const leaves = isServed ? begins : Math.max(begins, Math.min(over, arrives)); // its last byte
  const error = Math.max(...[from, to].map(({ row }) => run.errorOf(row.rank)));
  const colour = colourOf(state.theme, begins - arrives, error);
  state.marks.add(colour === state.theme.alarm ? "early" : "message");
  const isCalm = state.runs.length > 1 && thick === 1 && colour === state.theme.arrow; // of many, over two runs
  context.strokeStyle = isCalm ? state.theme.calm : colour;
  context.fillStyle = colour;
  const shift = shiftOf(state, number);
  const isDown = to.y > from.y;
  const y0 = from.y + (isDown ? from.bar : 0);
  const y1 = to.y + (isDown ? 0 : to.bar);
  arrow(context, xOf(state, leaves + shift), y0, xOf(state, arrives + shift), y1, thick);
}

/** Draw the messages in view; where they are many, only those of the event in focus. */
export function paintArrows(context, state) {
  const { runs, focus, layout } = state;
  runs.forEach((run, number) => {
    const inView = messagesInView(state, number);
    const ofFocus = focus?.run === number ? (run.flowsOf.get(focus.event) ?? []) : [];
    const isCrowded = inView.length > MOST || layout.bar < 8;
    if (number === 0) state.crowded = isCrowded;
    const isElsewhere = number > 0 && enlargedOf(state); // there they can be told apart
    for (const f of isCrowded || isElsewhere ? ofFocus : inView) {
      paintMessage(context, state, number, f, ofFocus.includes(f) ? 2 : 1);
    }
  });
}
