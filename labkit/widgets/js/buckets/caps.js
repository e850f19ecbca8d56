// What a step takes under each bucket cap: a table, and what is exposed of its communication as bars.

import { escaped, line, rect, tag, text, wrapped } from "../figure/markup.js";
import { least, most } from "../figure/numbers.js";
import { axis } from "../figure/plot.js";
import { seconds, secondsOf } from "../figure/units.js";
import { mib } from "./plan.js";

const MIB = 2 ** 20;
export const TORCHS = { cap: 25 * MIB, first: MIB, isUntilFull: true }; // of torch's DDP where nobody says otherwise
const [ROW, BAR] = [19, 12]; // pixels
const ENDS = [42, 136, 186, 248]; // pixels from a cap to where its columns end: those of HEADS
const HEADS = ["buckets", "communication", "hidden", "step"];
const ROOMY = 500; // pixels of a table that has room for all of them
const BOLD = 0.8; // of the letters in a line that are not bold
const LETTER = 6.5; // pixels
const FAR = 4; // times what is exposed in the middle row: a longer bar is broken, or the others could not be told apart
const BROKEN = 24; // pixels of such a bar after the axis
const APART = 8; // pixels between the slider's caps and torch's

/** Indices of caps beside each other under which the same is sent at the same time. */
function groupsOf({ data, ways, curve }) {
  const groups = [];
  curve.forEach((whole, k) => {
    const isOther = ways[k].plan.length !== ways[k - 1]?.plan.length || Math.abs(whole / curve[k - 1] - 1) > 1e-9;
    if (isOther || !data.caps[k]) groups.push([]);
    groups.at(-1).push(k);
  });
  return groups;
}

/** What a step takes beyond computing, if a rank is so late. */
export const beyond = (skew) => `exposed${skew ? " or waiting for the late rank" : ""}`;

/** What a row of the curve is called: those after the slider's are torch's. */
export const capOf = ({ caps }, k) => (caps[k] ? mib(caps[k]) : "DDP’s default");

/** "2 MiB", "25-100 MiB", "DDP’s default". */
function nameOf(data, group) {
  const [from, to] = [group[0], group.at(-1)].map((k) => capOf(data, k));
  return from === to ? to : `${Number.parseFloat(from)}-${to}`;
}

/** "2 MiB is best", "25-100 MiB are best". */
export function bestOf(scene) {
  const group = groupsOf(scene).find((each) => each.includes(scene.best));
  return `${nameOf(scene.data, group)} ${group[1] ? "are" : "is"} best`;
}

/** What is drawn of caps that are alike: { cap, name, cells, long, words, more, isThis, bold }. */
function rowOf({ data, values, ways, curve, best, now }, group) {
  const [k] = group;
  const { plan, comm, hidden, overlapped } = ways[k];
  const cap = data.caps[k];
  const isThis = group.some((each) => data.caps[each] === values.cap);
  const isBest = group.includes(best);
  const long = curve[k] - now.compute;
  const [sending, step, beside] = [comm, curve[k], long].map((time) => secondsOf(time, now.whole));
  return {
    cap,
    name: nameOf(data, group),
    cells: [plan.length, sending, hidden, step],
    long,
    words: beside + (isBest ? "  ✓ best" : ""),
    more: [
      isThis && "shown above",
      !cap && "first bucket full at 1 MiB, others at 25",
      plan.length === 1 && !overlapped && "all sent after backward",
    ].filter(Boolean),
    isThis,
    bold: isBest ? " bold" : "",
  };
}

/** A row from its name on; this cap's lies on a band, which is pale on a light page and on a dark one. */
function rowMarkup({ cap, name, cells, long, words, more, isThis, bold }, y, { x, wide, ends, scale, far }) {
  const base = y + BAR - 1;
  const left = ends.at(-1) + 8;
  const band = isThis ? rect(0, y - 3, x + wide, ROW - 1, { fill: "#8883" }) : "";
  const head = band + text(x - 6, base, name, `small end${bold}`);
  if (long === Infinity) return head + text(left, base, "✗ wrong plan");
  const isLonger = long > far;
  const end = left + least([long, far]) * scale + isLonger * BROKEN;
  const bar = { fill: bold ? "currentColor" : "var(--edge)", "data-cap": cap };
  const shown = more.filter((_, k) => end + LETTER * [words, ...more.slice(0, k + 1)].join("  ").length < x + wide);
  const told = [words, ...shown].map((each, k) =>
    tag("tspan", { class: k ? "grey" : bold, dx: k && 8 }, escaped(each)),
  );
  return (
    head +
    ends.map((at, k) => text(at, base, cells.at(k - ends.length), `end${bold}`)).join("") +
    rect(left, y, end - left, BAR, bar) +
    (isLonger
      ? line(end - 9, y + BAR + 2, end - 15, y - 2, "", { style: "stroke:var(--lk-ground,Canvas);stroke-width:4" })
      : "") +
    tag("text", { x: end + 6, y: base }, told.join(""))
  );
}

/** The table and its bars in a frame { x, y, wide } of a scene: [markup, height]. */
export function capBars(scene, { x, y, wide }) {
  const { advice, best, now } = scene;
  const [head, tall] = wrapped(advice, y + 14, BOLD * (x + wide), "plain bold");
  if (best < 0) return [head, tall];
  const rows = groupsOf(scene).map((group) => rowOf(scene, group));
  const ends = (wide < ROOMY ? [54] : ENDS).map((end) => x + end);
  const left = ends.at(-1) + 8;
  const room = x + wide - left;
  const right = rows.filter(({ long }) => long < Infinity);
  const longs = right.map(({ long }) => long).sort((a, b) => a - b);
  const far = most(longs.filter((long) => long <= FAR * longs[Math.floor(longs.length / 2)]));
  const perSecond = ({ long, words }) =>
    (room - LETTER * words.length - 10 - (long > far) * BROKEN) / least([long, far]);
  const scale = least(right.map(perSecond));
  const what = `${beyond(now.skew)} = step − ${seconds(now.compute)} of computing`;
  const [said, down] = wrapped(what, y + tall + 17, room);
  const named = (words, end) => text(end, y + tall + 3 + down, words, "small grey end");
  const top = y + tall + down + 10;
  const at = (k) => top + ROW * k + (rows[k]?.cap ? 0 : APART);
  const frame = { x, wide, ends, scale, far };
  const foot = at(rows.length);
  const mark = (time) => secondsOf(time, now.whole).replace(/\.00|(\.\d)0/, "$1");
  return [
    head +
      named("cap", x - 6) +
      ends.map((end, k) => named(HEADS.at(k - ends.length), end)).join("") +
      tag("g", { transform: `translate(${left})` }, said) +
      rows.map((row, k) => rowMarkup(row, at(k), frame)).join("") +
      axis(left, foot, far * scale, far, mark),
    foot + 22 - y,
  ];
}
