// What each bucket cap costs: the time of a step beyond its computing, as bars from 0.

import { hue } from "../figure/colours.js";
import { escaped, line, rect, tag, text, wrapped } from "../figure/markup.js";
import { least, most } from "../figure/numbers.js";
import { seconds, secondsOf } from "../figure/units.js";
import { mib } from "./plan.js";

const MIB = 2 ** 20;
export const TORCHS = { cap: 25 * MIB, first: MIB }; // of torch's DDP where nobody says otherwise
const [ROW, BAR] = [19, 12]; // pixels
const APART = 9; // pixels more before torch's own
const COUNTS = 84; // pixels of how many buckets there are, before the bars: these begin where no axis does
const HEADS = 10; // pixels under what is said over the bars
const BOLD = 0.8; // of the letters in a line that are not bold
const ROOMY = 600; // pixels of a plot that has room for reasons
const LETTER = 6.2; // pixels
const LESS = 0.92; // of the room: the longest bar that is not broken
const STUB = 40; // pixels of a broken bar after what is said in its gap, at least
const CUT = 10; // pixels between a bar that is cut and what is said of it
const TALLER = 4; // pixels of a line beside the gap, above and below
const FAR = 4; // times the middle one: a bar as long as that is broken, or the others could not be told apart

/** [[indices of caps, what they cost]]: caps beside each other under which the same is sent at the same time. */
function groupsOf({ data, curve, counts, now }) {
  const groups = [];
  curve.forEach((whole, k) => {
    const isAlike = data.caps[k] && counts[k] === counts[k - 1] && Math.abs(whole / curve[k - 1] - 1) < 1e-9;
    if (isAlike) groups.at(-1)[0].push(k);
    else groups.push([[k], Math.max(whole - now.compute, 0)]);
  });
  return groups;
}

/** What a row of the curve is called: those after the slider's are torch's. */
export const capOf = ({ caps }, k) => (caps[k] ? mib(caps[k]) : "DDP’s caps");

/** "2 MiB", "25-100 MiB", "DDP’s caps". */
function nameOf(data, group) {
  const [from, to] = [group[0], group.at(-1)].map((k) => capOf(data, k));
  return from === to ? to : `${Number.parseFloat(from)}-${to}`;
}

/** What there is to say of caps that are alike, where there is room: [why they cost that, which they are]. */
function reasons({ data, counts, sizes }, [first], isRoomy, { isThis, isBest }) {
  const count = counts[first];
  const why = (count === 1 && "sent after backward") || (count === sizes.length && "one per tensor") || "";
  const told = [
    isBest && "✓ best",
    isThis && "this cap, as above",
    !data.caps[first] && `first ${mib(TORCHS.first)}, then ${mib(TORCHS.cap)}`,
  ].filter(Boolean);
  return isRoomy ? [why, told.join(", ")] : ["", told[0]?.split(",")[0] ?? ""];
}

/** What is drawn of caps that are alike: { cap, name, sent, words, cost, isThis, isBest }. */
function rowOf(scene, [group, cost], isRoomy) {
  const { data, values, counts, curve, now } = scene;
  const count = counts[group[0]];
  const is = {
    isThis: group.some((k) => data.caps[k] === values.cap),
    isBest: group.includes(curve.indexOf(least(curve))),
  };
  return {
    ...is,
    cap: data.caps[group[0]],
    name: nameOf(data, group),
    sent: `${count} bucket${count === 1 ? "" : "s"}`,
    words: [secondsOf(cost, now.whole), ...reasons(scene, group, isRoomy, is)],
    cost,
  };
}

/** A row { x, wide } from its name on: of this cap on a ground of its own and outlined; of the best in ink. */
function rowMarkup(row, { x, y, wide, left, room, scale, isRoomy, far }) {
  const isFar = row.cost > far;
  const long = isFar ? LESS * room : row.cost * scale;
  const bold = row.isThis || row.isBest ? " bold" : "";
  const ground = { style: "fill:currentColor", opacity: 0.1 };
  const fill = row.isBest ? "currentColor" : hue("line");
  const look = isFar ? { fill: "none", stroke: fill } : { fill }; // the longest bar is not what matters most
  const over = left + long + roomOf(row.words) + 2 * CUT; // where a broken bar goes on, to the edge of the picture
  const cut = (at) => line(at + 3, y - TALLER, at - 3, y + BAR + TALLER, "now");
  const told = [isFar ? " bold" : bold, "grey", "bold"].map((weight, k) =>
    tag("tspan", { class: weight, dx: k && 8 }, escaped(row.words[k])),
  );
  return (
    (row.cap ? "" : line(0, y - 8, x + wide, y - 8, "soft")) + // no cap of the slider's
    (row.isThis ? rect(0, y - 3, x + wide, ROW - 1, ground) : "") +
    rect(left, y, long, BAR, { stroke: row.isThis && "currentColor", ...look, "data-cap": row.cap }) +
    (isFar ? rect(over, y, x + wide - over, BAR, look) + cut(left + long) + cut(over) : "") +
    text(x - 6, y + BAR - 2, row.name, `small end${bold}`) +
    (isRoomy ? text(x, y + BAR - 2, row.sent, "small grey") : "") +
    tag("text", { x: left + long + (isFar ? CUT : 6), y: y + BAR - 1 }, told.join(""))
  );
}

/** Pixels of what stands beside a bar. */
const roomOf = (words) => LETTER * words.filter(Boolean).join("  ").length + 10;

/** The bars in a frame { x, y, wide } of a scene: [markup, height]. */
export function capBars(scene, { x, y, wide }) {
  const isRoomy = wide >= ROOMY;
  const rows = groupsOf(scene).map((group) => rowOf(scene, group, isRoomy));
  const left = isRoomy ? x + COUNTS : x;
  const costs = rows.map(({ cost }) => cost).sort((a, b) => a - b);
  const far = FAR * costs[costs.length >> 1] || Infinity;
  for (const row of rows) if (row.cost > far) row.words[0] += ", cut here";
  const room = wide - (left - x) - most(rows.map(({ words, cost }) => roomOf(words) + (cost > far && STUB)));
  const scale = (LESS * room) / most([1e-12, ...costs.filter((cost) => cost <= far)]);
  const [head, tall] = wrapped(scene.advice, y + 14, BOLD * (x + wide), "plain bold");
  const skew = scene.now.skew ? " and waiting for the late rank" : "";
  const beside = `exposed communication of a step${skew}, on top of ${seconds(scene.now.compute)} of computing`;
  const [told, down] = isRoomy
    ? [text(left, y + tall + 17, beside, "small grey"), 14]
    : wrapped(beside, y + tall + 17, x + wide);
  const top = y + tall + down + HEADS;
  const bars = rows.map((row, k) =>
    rowMarkup(row, { x, y: top + ROW * k + (row.cap ? 0 : APART), wide, left, room, scale, isRoomy, far }),
  );
  return [head + told + bars.join(""), tall + down + HEADS + APART + ROW * rows.length + 4];
}
