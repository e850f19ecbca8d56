// What stands before a row: the name of its lane, or of its stream.

import { LEFT } from "./layout.js";
import { countStreams } from "./streams.js";
import { widthOf } from "./paint_marks.js";
import { unsplit } from "./unsplit.js";

export const LANES = ["compute", "comm", "host", "spans"];

/** The longest of a stream's names for which there is room: "default stream", "default", "group 0, 4…". */
function streamName(context, state, name, room) {
  const words = name.split(" ").map((_, k, all) => all.slice(0, all.length - k).join(" "));
  const names = [name, ...words.slice(1).map((each) => (name.startsWith("default") ? each : `${each}…`))];
  return names.find((each) => widthOf(context, state, each) <= room) ?? "";
}

/** The name of a row, beside that of its rank where it has one. */
export function rowName(context, state, { row, run, first }, rank) {
  if (row.stream) {
    const room = LEFT - 12 - (first ? widthOf(context, state, rank()) : 0);
    return streamName(context, state, row.stream, room);
  }
  const isFolded = state.runs[run].streams && countStreams(unsplit(state.runs[run])).several.has(row);
  return (isFolded ? "▸ " : "") + LANES[row.lane];
}
