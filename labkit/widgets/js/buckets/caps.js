// What a step takes under each bucket cap, as bars: its computing, cut short, and the communication that is exposed.

import { hue } from "../figure/colours.js";
import { escaped, line, rect, tag, text, wrapped } from "../figure/markup.js";
import { least } from "../figure/numbers.js";
import { seconds, secondsOf } from "../figure/units.js";
import { mib } from "./plan.js";

const MIB = 2 ** 20;
export const TORCHS = { cap: 25 * MIB, first: MIB }; // of torch's DDP where nobody says otherwise
const [ROW, BAR] = [19, 12]; // pixels
const [HIDDEN, STEP] = [50, 62]; // pixels of what is hidden, and of what a step takes, before the bars
const COUNTS = 72; // pixels of how many buckets there are, where there is room
const TIGHT = 260; // pixels of a plot that has no room for what is hidden
const COMPUTING = [20, 162]; // pixels of it at most, where there is little room and much: it is the same in all
const HEADS = 10; // pixels under what is said over the bars
const BOLD = 0.8; // of the letters in a line that are not bold
const ROOMY = 600; // pixels of a plot that has room for reasons
const LETTER = 6.5; // pixels
const FAR = 2; // times the shortest step: a longer bar is cut, or the others could not be told apart
const ENLARGED = 3; // times as wide as the plot, at most, were computing drawn whole
const APART = 8; // pixels between the slider's caps and torch's

/** [[indices of caps, what a step takes]]: caps beside each other under which the same is sent at the same time. */
function groupsOf({ data, curve, counts }) {
  const groups = [];
  curve.forEach((whole, k) => {
    const isAlike = data.caps[k] && counts[k] === counts[k - 1] && Math.abs(whole / curve[k - 1] - 1) < 1e-9;
    if (isAlike) groups.at(-1)[0].push(k);
    else groups.push([[k], whole]);
  });
  return groups;
}

/** What a step takes beyond computing, if a rank is so late. */
export const beyond = (skew, what = "") => `exposed${what}${skew ? " or waiting for the late rank" : ""}`;

/** What a row of the curve is called: those after the slider's are torch's. */
export const capOf = ({ caps }, k) => (caps[k] ? mib(caps[k]) : "DDP’s default");

/** "2 MiB", "25-100 MiB", "DDP’s default". */
function nameOf(data, group) {
  const [from, to] = [group[0], group.at(-1)].map((k) => capOf(data, k));
  return from === to ? to : `${Number.parseFloat(from)}-${to}`;
}

/** What is drawn of caps that are alike: { cap, name, sent, hidden, whole, words, isThis, isBest }. */
function rowOf({ data, values, counts, hidden, curve, sizes, now }, [group, whole], isRoomy) {
  const [cap, count] = [data.caps[group[0]], counts[group[0]]];
  const isThis = group.some((k) => data.caps[k] === values.cap);
  const isBest = group.includes(curve.indexOf(least(curve)));
  const why =
    (!cap && "first 1 MiB, then 25 MiB") ||
    (count === 1 && "sent after backward") ||
    (count === sizes.length && "one per gradient");
  const marks = [isBest && "✓ best", isRoomy && isThis && "this cap, as above"].filter(Boolean).join(", ");
  const words = [secondsOf(Math.max(whole - now.compute, 0), now.whole), marks, isRoomy && why];
  return {
    cap,
    name: nameOf(data, group),
    sent: isRoomy ? `${count} bucket${count === 1 ? "" : "s"}` : "",
    hidden: hidden[group[0]],
    whole,
    words,
    isThis,
    isBest,
  };
}

/** Where a bar is cut. */
const cut = (x, y) =>
  line(x + 3, y + BAR + 2, x - 3, y - 2, "", { style: "stroke:var(--lk-ground,Canvas);stroke-width:4" });

/** A row { x, wide } from its name on: computing, then what is exposed; this cap's is framed. */
function rowMarkup(row, { x, y, wide, left, from, scale, far, compute, isCut, room }) {
  const bold = row.isBest ? " bold" : "";
  const end = from + (Math.min(row.whole, far) - compute) * scale;
  const told = row.words.map(
    (words, k) => words && tag("tspan", { class: k < 2 ? bold : "grey", dx: k && 8 }, escaped(words)),
  );
  return (
    (row.isThis ? rect(0, y - 3, x + wide, ROW - 1, { fill: "none", stroke: "currentColor" }) : "") +
    rect(left, y, from - left, BAR, { fill: "var(--soft)" }) +
    (isCut ? cut((left + from) / 2, y) : "") +
    rect(from, y, end - from, BAR, { fill: row.isThis ? hue("wrong") : "var(--grey)", "data-cap": row.cap }) +
    (row.whole > far ? cut(end - 12, y) : "") +
    text(x - 6, y + BAR - 2, row.name, `small end${bold}`) +
    text(x, y + BAR - 2, row.sent, "small grey") +
    (room ? text(left - 8 - STEP, y + BAR - 1, row.hidden, `end${bold}`) : "") +
    text(left - 8, y + BAR - 1, seconds(row.whole), `end${bold}`) +
    tag("text", { x: end + 6, y: y + BAR - 1 }, told.filter(Boolean).join(""))
  );
}

/** The bars in a frame { x, y, wide } of a scene: [markup, height]. */
export function capBars(scene, { x, y, wide }) {
  const { advice, curve, now } = scene;
  const isRoomy = wide >= ROOMY;
  const rows = groupsOf(scene).map((group) => rowOf(scene, group, isRoomy));
  const room = wide < TIGHT ? 0 : HIDDEN;
  const left = x + room + STEP + (isRoomy && COUNTS);
  const most = COMPUTING[Number(isRoomy)];
  const far = FAR * least(curve);
  const beside = (words) => LETTER * words.filter(Boolean).join("  ").length + 10;
  const perSecond = ({ words, whole }) =>
    (x + wide - left - most - beside(words)) / (Math.min(whole, far) - now.compute);
  const scale = least([...rows.map(perSecond), (ENLARGED * wide) / now.compute]);
  const isCut = now.compute * scale > most;
  const from = left + least([most, now.compute * scale]);
  const [head, tall] = wrapped(advice, y + 14, BOLD * (x + wide), "plain bold");
  const parts = [
    `= ${seconds(now.compute)} of computing${isCut ? ", cut" : ""}`,
    `+ ${beyond(now.skew, " communication")}`,
  ];
  const words = (at, said, kind = "") => text(at, y + tall + 17, said, `small grey${kind}`);
  const [told, down] = isRoomy
    ? [
        words(x - 6, "cap", " end") +
          words(left - 8 - STEP, "hidden", " end") +
          words(left - 8, "step", " end") +
          words(left, parts[0]) +
          words(left + most, parts[1]),
        14,
      ]
    : wrapped(`${room ? "hidden, " : ""}step ${parts.join(" ")}`, y + tall + 17, x + wide);
  const top = y + tall + down + HEADS;
  const frame = { x, wide, left, from, scale, far, compute: now.compute, isCut, room };
  const bars = rows.map((row, k) => rowMarkup(row, { ...frame, y: top + ROW * k + (!row.cap && APART) }));
  return [head + told + bars.join(""), tall + down + HEADS + ROW * rows.length + APART];
}
