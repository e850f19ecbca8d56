// Events in view as a table.

import { element, tableOf } from "./element.js";
import { labelOf } from "./kinds.js";
import { windowOf } from "./layout.js";
import { streamOf } from "./unsplit.js";
import { bytesText, countText, named, timeText } from "./words.js";

const MOST = 200;
const HEADS = ["rank", "event", "kind", "begin", "length", "bytes", "peer", "line"];

function cellsOf(run, { rank }, i) {
  const [name, kind, , peer, source] = labelOf(run, i);
  const size = run.bytes[i] ? bytesText(run.bytes[i]) : "";
  const times = [timeText(run.start[i]), timeText(run.end[i] - run.start[i])];
  const where = [rank, streamOf(run, i)].filter((each) => each !== "").join(", ");
  return [named(run, where), name, kind, ...times, size, peer >= 0 ? peer : "", source];
}

/** Rows of a run's events in view, at most one more than `most`. */
function rowsOf(run, t0, t1, most) {
  const found = [];
  for (const row of run.rows) {
    for (let i = row.first; i < row.last && found.length <= most && run.start[i] < t1; i++) {
      if (run.end[i] > t0) found.push(cellsOf(run, row, i));
    }
  }
  return found;
}

/** Write the events in view; `empty` is said of runs of nothing. */
export function writeEvents(place, state, empty) {
  const { runs } = state;
  const most = MOST / runs.length;
  const found = runs.map((run, number) => rowsOf(run, ...windowOf(state, number), most));
  const rows = found.flatMap((each) => each.slice(0, most));
  const events = countText(rows.length, "event");
  const inView = runs.some(({ span }) => span) ? `${events} in view.` : empty;
  const isCut = found.some((each) => each.length > most);
  const caption = isCut ? `The first ${events} in view; zoom in for the others.` : inView;
  const shown = rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, String(cell)))));
  place.replaceChildren(element("table", {}, element("caption", {}, caption), ...tableOf(HEADS, shown)));
}
