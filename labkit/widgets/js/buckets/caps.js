// Step time over the bucket cap: from what computing alone takes to what a step without overlap takes.

import { strokeOf } from "../figure/colours.js";
import { tag, text, wrapped } from "../figure/markup.js";
import { least, most } from "../figure/numbers.js";
import { plot, levelsIn } from "../figure/plot.js";
import { seconds } from "../figure/units.js";

const MIB = 2 ** 20;
const BASE = 0.12; // of the plot's height, in which no number stands over that of the axis
const NEAR = 0.15; // of it, by which the slowest may lie above a step without overlap and still be on its scale
const ABOVE = 40; // pixels above a cut of the axis, for what is far slower
const CUT = 10; // pixels of a cut
const HEADS = 16; // pixels under what is said over the plot
const BOLD = 0.8; // of the letters in a line that are not bold
const LETTER = 6; // pixels
const ROOM = 130; // from the picture's edge to the middle of words
const ROOMY = 600; // pixels of a plot with words at its ends
const mib = (cap) => `${Number(cap.toPrecision(3))} MiB`;

/**
 * From where to where the plot reaches: the step that only computes, and the one without overlap or the slowest; and
 * from where to where what is far slower than that, which stands above a cut.
 */
function reachOf({ now, curve }) {
  const low = now.compute;
  const usual = most([least([most(curve), now.alone]), least(curve), now.whole, low * 1.01]);
  const high = most([usual, ...curve.filter((time) => time <= usual + NEAR * (usual - low))]);
  const far = curve.filter((time) => time > high);
  return { low, high, far: far.length ? [least(far), most(far)] : undefined };
}

/** What it says over the plot, in a width: [markup, height]. */
function headOf(scene, y, wide) {
  const [markup, tall] = wrapped(scene.advice, y + 14, BOLD * wide, "plain bold");
  const what = `step time by bucket cap (log scale), from ${seconds(scene.now.compute)} on: only computing`;
  const [told, down] = wrapped(reachOf(scene).far ? `${what}; cut at the zigzag` : what, y + tall + 17, wide);
  return [markup + told, tall + down + HEADS];
}

/** Pixels of the plot in all, without the numbers under it. */
export const capsTall = (scene, { x, y, wide, tall }) =>
  tall + headOf(scene, y, x + wide)[1] + (reachOf(scene).far ? ABOVE + CUT : 0);

/** Why a curve is flat at either end, where it is. */
function endWords({ sizes, curve, counts }, { x, wide }, at) {
  if (wide < ROOMY) return "";
  const isFlat = (one, other) => Math.abs(curve.at(one) / curve.at(other) - 1) < 1e-9;
  let svg = "";
  if (counts[0] === sizes.length && isFlat(0, 1)) {
    svg += text(x + 10, at(curve[0]) + 16, "a bucket for each tensor, each with its latency", "small grey");
  }
  if (counts.at(-1) === 1) {
    svg += text(
      x + wide,
      at(curve.at(-1)) + 16,
      `${seconds(curve.at(-1))}: one bucket, sent after backward`,
      "small grey end",
    );
  }
  return svg;
}

/** A dot where a cap can be chosen. */
const dot = ([cx, cy], isBest, told) =>
  tag("circle", { cx, cy, r: isBest ? 5 : 2.5, fill: "currentColor", style: "fill:currentColor", ...told });

/** Two zigzags beside an axis where it is cut. */
const cut = (x, y) =>
  [y, y + CUT / 2].map((at) => tag("path", { d: `M${x} ${at}${"l5 -4l5 4".repeat(4)}`, class: "edge" })).join("");

/** What this cap costs, on the side of the best one, where the curve is lower; less of it where that is near. */
function ownWords(x, y, long, short, away) {
  const words = `this cap: ${long}`;
  if (Math.abs(away) < LETTER * words.length) return text(x, y, short, "small middle");
  return text(x, y, words, away > 0 ? "small end" : "small");
}

/** Whether the line through points passes through a box of words. */
const isCrossed = (line, left, right, top, bottom) =>
  line.some(([x, y], k) => {
    const [before, down] = line[k - 1] ?? [x, y];
    const [from, to] = [Math.max(left, before), Math.min(right, x)];
    if (k === 0 || from > to) return false;
    const ends = [from, to].map((each) => down + ((y - down) * (each - before)) / (x - before));
    return Math.max(...ends) > top && Math.min(...ends) < bottom;
  });

/** The best one's name: below it, near the axis left of it, or above it where the line is in its way there. */
function bestWords(words, line, best, { bound, wide }) {
  const [cx, cy] = line[best];
  const right = cx - 10;
  const left = right - (LETTER + 1) * words.length;
  const isFree = left > line[0][0] && !isCrossed(line.slice(0, best + 1), left, right, cy - 7, bound);
  if (cy + 30 > bound && isFree) return text(right, Math.min(cy + 4, bound - 5), words, "small end bold");
  const down = cy + 18 > bound ? cy - 10 : cy + 15; // not across the axis
  return text(Math.min(Math.max(cx, ROOM), ROOM + wide), down, words, "small middle bold");
}

/** The points: those that can be chosen, this one hollow, the best full, and both named off the curve. */
function points({ data, curve }, at, place, { bound, wide }) {
  const best = curve.indexOf(least(curve));
  const line = curve.map((_, k) => place(k));
  const named = (k) => `${mib(data.caps[k] / MIB)}, ${seconds(curve[k])}`;
  return data.caps.map((cap, k) => {
    const [cx, cy] = place(k);
    const told = { "data-cap": cap, "data-tip": named(k) };
    if (k === at && k !== best) {
      const hollow = tag("circle", { cx, cy, r: 4.5, style: `${strokeOf(0)};fill:var(--lk-ground, Canvas)`, ...told });
      return hollow + ownWords(cx, cy - 10, named(k), seconds(curve[k]), cx - place(best)[0]);
    }
    const svg = dot([cx, cy], k === best, told);
    if (k !== best) return svg;
    return svg + bestWords(`best: ${named(k)}`, line, k, { bound, wide });
  });
}

const shown = (cap) => String(Number(cap.toPrecision(2)));

/** The caps that can be chosen, and whose numbers have room beside each other. */
function apart(caps, across) {
  let end = -Infinity;
  return caps.filter((cap) => {
    const half = (LETTER * (shown(cap).length + 1)) / 2;
    if (across(cap) - half < end) return false;
    end = across(cap) + half;
    return true;
  });
}

/** Every other one of many levels, for words have room between them. */
const few = (levels) => (levels.length > 3 ? levels.filter((_, k) => k % 2) : levels);

/** Where the axis across and the one up reach, with their numbers. */
const scalesOf = (caps, across, { low, high }) => [
  [caps[0], caps.at(-1), shown, true, apart(caps, across)],
  [low, high, seconds, false, [low, ...few(levelsIn(low + BASE * (high - low), high))]],
];

/** The line through the points; over a cut of the axis, where its slope means nothing, in dashes. */
function lineOf(curve, high, place) {
  let [solid, dashed] = ["", ""];
  curve.forEach((time, k) => {
    const isCut = k > 0 && time > high !== curve[k - 1] > high;
    solid += `${k && !isCut ? "L" : "M"}${place(k)}`;
    if (isCut) dashed += `M${place(k - 1)}L${place(k)}`;
  });
  const style = strokeOf(0);
  return tag("path", { d: solid, style }) + tag("path", { d: dashed, style: `${style} 3 4` });
}

/** The plot in a frame { x, y, wide, tall } of a scene of the picture; under what it says. */
export function capPlot(scene, { x, y: top, wide, tall }) {
  const { data, values, curve } = scene;
  const at = data.caps.indexOf(values.cap);
  const caps = data.caps.map((cap) => cap / MIB);
  const [from, to] = [caps[0], caps.at(-1)];
  const reach = reachOf(scene);
  const { low, high, far } = reach;
  const [head, down] = headOf(scene, top, x + wide);
  const y = top + down + (far ? ABOVE + CUT : 0);
  const frame = { x, y, wide, tall };
  const inFar = (time) => top + down + 6 + ((far[1] - time) / (far[1] - far[0]) || 0) * (ABOVE - 26);
  const up = (time) => (time > high ? inFar(time) : y + tall * (1 - (time - low) / (high - low)));
  const across = (cap) => x + wide * (from < to ? Math.log(cap / from) / Math.log(to / from) : 0);
  const place = (k) => [across(caps[k]), up(curve[k])];
  const levels = far ? [...new Set(far)].map((time) => text(x - 6, up(time) + 4, seconds(time), "small end")) : [];
  return (
    head +
    plot(x, y, wide, tall, "", [], ...scalesOf(caps, across, reach)) +
    lineOf(curve, high, (k) => place(k).join(" ")) +
    (far ? cut(x - 46, y - CUT) : "") +
    levels.join("") +
    text(0, y + tall + 16, "cap, MiB", "small grey") +
    endWords(scene, frame, up) +
    points(scene, at, place, { bound: y + tall, wide }).join("")
  );
}
