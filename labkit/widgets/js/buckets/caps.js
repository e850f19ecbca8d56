// What a step takes under each bucket cap, as bars from 0: its computing, and the communication that is exposed.

import { hue } from "../figure/colours.js";
import { escaped, line, rect, tag, text, wrapped } from "../figure/markup.js";
import { least } from "../figure/numbers.js";
import { seconds, secondsOf } from "../figure/units.js";
import { mib } from "./plan.js";

const MIB = 2 ** 20;
export const TORCHS = { cap: 25 * MIB, first: MIB }; // of torch's DDP where nobody says otherwise
const [ROW, BAR] = [19, 12]; // pixels
const STEP = 62; // pixels of what a step takes, before the bars
const COUNTS = 72; // pixels of how many buckets there are, where there is room
const HEADS = 10; // pixels under what is said over the bars
const BOLD = 0.8; // of the letters in a line that are not bold
const ROOMY = 600; // pixels of a plot that has room for reasons
const LETTER = 6.5; // pixels
const FAR = 2; // times the shortest step: a longer bar is cut, or the others could not be told apart

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
export const beyond = (skew) => `exposed communication${skew ? " and waiting for the late rank" : ""}`;

/** What a row of the curve is called: those after the slider's are torch's. */
export const capOf = ({ caps }, k) => (caps[k] ? mib(caps[k]) : "DDP’s default");

/** "2 MiB", "25-100 MiB", "DDP’s default". */
function nameOf(data, group) {
  const [from, to] = [group[0], group.at(-1)].map((k) => capOf(data, k));
  return from === to ? to : `${Number.parseFloat(from)}-${to}`;
}

/** What is drawn of caps that are alike: { cap, name, sent, whole, words, isThis, isBest }. */
function rowOf({ data, values, counts, curve, sizes, now }, [group, whole], isRoomy) {
  const [cap, count] = [data.caps[group[0]], counts[group[0]]];
  const isThis = group.some((k) => data.caps[k] === values.cap);
  const isBest = group.includes(curve.indexOf(least(curve)));
  const why =
    (!cap && `first ${mib(TORCHS.first)}, then ${mib(TORCHS.cap)}`) ||
    (count === 1 && "sent after backward") ||
    (count === sizes.length && "one per tensor");
  const marks = [isBest && "✓ best", isRoomy && isThis && "this cap, as above"].filter(Boolean).join(", ");
  const words = [secondsOf(Math.max(whole - now.compute, 0), now.whole), marks, isRoomy && why];
  return {
    cap,
    name: nameOf(data, group),
    sent: `${count} bucket${count === 1 ? "" : "s"}`,
    whole,
    words,
    isThis,
    isBest,
  };
}

/** A row { x, wide } from its name on: computing, then what is exposed; this cap's is framed. */
function rowMarkup(row, { x, y, wide, left, scale, far, compute }) {
  const bold = row.isBest ? " bold" : "";
  const [from, end] = [compute, Math.min(row.whole, far)].map((time) => left + time * scale);
  const told = row.words.map(
    (words, k) => words && tag("tspan", { class: k < 2 ? bold : "grey", dx: k && 8 }, escaped(words)),
  );
  return (
    (row.isThis ? rect(0, y - 3, x + wide, ROW - 1, { fill: "none", stroke: "currentColor" }) : "") +
    rect(left, y, from - left, BAR, { fill: "var(--soft)" }) +
    rect(from, y, end - from, BAR, { fill: row.isThis ? hue("wrong") : "var(--grey)", "data-cap": row.cap }) +
    (row.whole > far
      ? line(end - 9, y + BAR + 2, end - 15, y - 2, "", { style: "stroke:var(--lk-ground,Canvas);stroke-width:4" })
      : "") +
    text(x - 6, y + BAR - 2, row.name, `small end${bold}`) +
    text(x, y + BAR - 2, row.sent, "small grey") +
    text(left - 8, y + BAR - 1, seconds(row.whole), `end${bold}`) +
    tag("text", { x: end + 6, y: y + BAR - 1 }, told.filter(Boolean).join(""))
  );
}

/** The bars in a frame { x, y, wide } of a scene: [markup, height]. */
export function capBars(scene, { x, y, wide }) {
  const { advice, curve, now } = scene;
  const isRoomy = wide >= ROOMY;
  const rows = groupsOf(scene).map((group) => rowOf(scene, group, isRoomy));
  const left = x + STEP + (isRoomy && COUNTS);
  const far = FAR * least(curve);
  const beside = (words) => LETTER * words.filter(Boolean).join("  ").length + 10;
  const scale = least(rows.map(({ words, whole }) => (x + wide - left - beside(words)) / Math.min(whole, far)));
  const [head, tall] = wrapped(advice, y + 14, BOLD * (x + wide), "plain bold");
  const parts = [`= ${seconds(now.compute)} of computing`, `+ ${beyond(now.skew)}`];
  const [first, second] = [left, Math.max(left + now.compute * scale, left + LETTER * (parts[0].length + 1))];
  const words = (at, said, kind = "") => text(at, y + tall + 17, said, `small grey${kind}`);
  const [told, down] = isRoomy
    ? [
        words(x - 6, "cap", " end") +
          words(left - 8, "step", " end") +
          words(first, parts[0]) +
          words(second, parts[1]),
        14,
      ]
    : wrapped(`step ${parts.join(" ")}`, y + tall + 17, x + wide);
  const top = y + tall + down + HEADS;
  const frame = { x, wide, left, scale, far, compute: now.compute };
  const bars = rows.map((row, k) => rowMarkup(isRoomy ? row : { ...row, sent: "" }, { ...frame, y: top + ROW * k }));
  return [head + told + bars.join(""), tall + down + HEADS + ROW * rows.length];
}
