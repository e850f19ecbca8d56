// What the marks of a schedule mean: of those that are drawn, and of no other.

import { line, rect, tag } from "../figure/markup.js";
import { key } from "../figure/plot.js";
import { EMPTY, fillOf, STRIPES } from "./stage_row.js";

const KINDS = [
  ["F", "F forward"],
  ["B", "B backward"],
  ["I", "I backward of the input"],
  ["W", "W backward of the weight"],
];

const block = (fill) => (x, y, wide, tall) => rect(x, y, wide, tall, { fill, rx: 2, class: "edge" });
const dotted = (x, y, wide, tall) =>
  block(fillOf("W"))(x, y, wide, tall) + rect(x, y, wide, 5, { fill: "url(#lk-dots)" });
const footed = (x, y, wide, tall) => block("none")(x, y, wide, tall) + rect(x, y + 7, wide, 4, { fill: "#0005" });
const dashed = (x, y, wide, tall) => rect(x, y, wide, tall, { fill: "none", class: "rule", "stroke-dasharray": "3 2" });
const limited = (x, y, wide) => line(x, y + 6, x + wide, y + 6, "", { style: "stroke:var(--bad);stroke-width:1.5" });

/** A curve that rises to its dot. */
function held(x, y, wide, tall) {
  const d = `M${x} ${y + tall}h4v-4h4v-4h6v8z`;
  const dot = { cx: x + wide - 6, cy: y + tall - 8, r: 2.5, fill: "currentColor" };
  return tag("path", { class: "rule", style: "fill:var(--soft)", d }) + tag("circle", dot);
}

/** [markup, height] of the legend of schedules that are laid out. */
export function legendOf(all, { limit, tf, tb }, width) {
  const operations = all.flatMap(({ stages }) => stages.flat().map(([operation]) => operation));
  const isPlanned = !all.some(({ placed }) => placed);
  const takes = { F: tf, B: tb }; // what the axis counts
  const kinds = new Set(operations.map(([kind]) => kind));
  const entries = [
    ...KINDS.filter(([kind]) => kinds.has(kind)).map(([kind, words]) => [
      isPlanned && takes[kind] ? `${words}, takes ${takes[kind]}` : words,
      kind === "W" ? dotted : block(fillOf(kind)),
    ]),
    ...(all.some(({ idle }) => idle.length) ? [[EMPTY, block(STRIPES)]] : []),
    ["held: from F to the end of B; dot: peak", held],
  ];
  if (limit) entries.push(["memory limit", limited]);
  if (operations.some(([, , chunk]) => chunk % 2)) entries.push(["odd chunk", footed]);
  if (all.some(({ model }) => model)) entries.push(["as planned", dashed]);
  return key(entries, 0, width);
}
