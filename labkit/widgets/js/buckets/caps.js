// Step time over the bucket cap: from what computing alone takes to what a step without overlap takes.

import { strokeOf } from "../figure/colours.js";
import { line, tag, text } from "../figure/markup.js";
import { least, most } from "../figure/numbers.js";
import { plot } from "../figure/plot.js";
import { seconds } from "../figure/units.js";

const MIB = 2 ** 20;
const BELOW = 0.2; // of the plot's height, under the lower bound, for words
const LETTER = 6; // pixels
const ROOM = 130; // from the picture's edge to the middle of words
const ROOMY = 600; // pixels of a plot with words at its ends
const mib = (cap) => `${Number(cap.toPrecision(3))} MiB`;

/** From where to where the plot reaches: the step that only computes, and the one without overlap or the slowest. */
function reachOf({ now, curve }) {
  const low = now.compute;
  const high = most([least([most(curve), now.alone]), least(curve), now.whole, low * 1.01]);
  return [low - BELOW * (high - low), high];
}

/** Why a curve is flat at either end, where it is. */
function endWords({ sizes, curve, counts }, { x, y, wide }, at) {
  if (wide < ROOMY) return "";
  const isFlat = (one, other) => Math.abs(curve.at(one) / curve.at(other) - 1) < 1e-9;
  let svg = "";
  if (counts[0] === sizes.length && isFlat(0, 1)) {
    svg += text(x + 10, y + 30, "a bucket for each tensor, each with its latency", "small grey");
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

/** A dot where a cap can be chosen; above the plot's end a head that points there, with its time. */
function dot([cx, cy], { above, isBest, isFirst }, told) {
  const looks = { fill: "currentColor", style: "fill:currentColor", ...told };
  if (above) {
    const words = isFirst ? text(cx + 8, cy + 7, above, "small") : text(cx - 8, cy + 7, above, "small end");
    return tag("path", { d: `M${cx - 4} ${cy + 6}h8l-4 -7z`, ...looks }) + words;
  }
  return tag("circle", { cx, cy, r: isBest ? 5 : 2.5, ...looks });
}

/** What this cap costs, on the side of the best one, where the curve is lower; less of it where that is near. */
function ownWords(x, y, long, short, away) {
  const words = `this cap: ${long}`;
  if (Math.abs(away) < LETTER * words.length) return text(x, y, short, "small middle");
  return text(x, y, words, away > 0 ? "small end" : "small");
}

/** The points: those that can be chosen, this one hollow, the best full, and both named off the curve. */
function points({ data, curve }, at, place, { high, bound, wide }) {
  const best = curve.indexOf(least(curve));
  const named = (k) => `${mib(data.caps[k] / MIB)}, ${seconds(curve[k])}`;
  return data.caps.map((cap, k) => {
    const [cx, cy] = place(k);
    const told = { "data-cap": cap, "data-tip": named(k) };
    const isAbove = curve[k] > high;
    const above = isAbove && (wide < ROOMY ? " " : seconds(curve[k]));
    let svg = k === at && !isAbove ? "" : dot([cx, cy], { above, isBest: k === best, isFirst: k === 0 }, told);
    if (k === at && k !== best) svg += ownWords(cx, cy - 10, named(k), seconds(curve[k]), cx - place(best)[0]);
    if (k !== best) return svg;
    const under = cy + 17 > bound - 3 ? bound + 14 : cy + 17; // not across the dashed line
    return svg + text(Math.max(cx, ROOM), under, `best: ${named(k)}`, "small middle bold");
  });
}

/** The pieces of the curve that are seen whole, and of one that leaves the plot the part up to there. */
function pieces(all, high) {
  return all.slice(1).flatMap(([u, v], k) => {
    const [before, was] = all[k];
    if (v > high && was > high) return [];
    const cut = (one, level, other, to) => [
      Math.exp(Math.log(one) + ((high - level) / (to - level)) * Math.log(other / one)),
      high,
    ];
    const ends = [was > high ? cut(before, was, u, v) : [before, was], v > high ? cut(u, v, before, was) : [u, v]];
    return [ends];
  });
}

/** What the dashed line is, at the end where the best cap is not. */
function boundWords({ x, wide }, y, time, isRight) {
  if (wide < ROOMY) return "";
  return text(isRight ? x + 6 : x + wide, y + 14, `only computing: ${time}`, isRight ? "small grey" : "small grey end");
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

/** What the plot shows, and what its marks mean. */
const headOf = (curve, high) =>
  `step time by bucket cap; ● best, ◯ this cap${curve.some((time) => time > high) ? ", ▲ above the scale" : ""}`;

/** The plot in a frame { x, y, wide, tall } of a scene of the picture. */
export function capPlot(scene, frame) {
  const { data, values, now, curve } = scene;
  const { x, y, wide, tall } = frame;
  const at = data.caps.indexOf(values.cap);
  const caps = data.caps.map((cap) => cap / MIB);
  const [from, to] = [caps[0], caps.at(-1)];
  const [low, high] = reachOf(scene);
  const up = (time) => y + tall * (1 - Math.min((time - low) / (high - low), 1));
  const across = (cap) => x + wide * (from < to ? Math.log(cap / from) / Math.log(to / from) : 0);
  const seen = pieces(
    curve.map((time, k) => [caps[k], time]),
    high,
  );
  const mark = curve[at] <= high ? [[[], strokeOf(0), {}, [caps[at], curve[at]]]] : [];
  const curves = [...seen.map((piece) => [piece, strokeOf(0)]), ...mark];
  const isRight = across(caps[curve.indexOf(least(curve))]) > x + wide / 2;
  const scales = [
    [from, to, shown, true, apart(caps, across)],
    [low, high, seconds],
  ];
  const bound = up(now.compute);
  return (
    line(x, bound, x + wide, bound, "rule", { "stroke-dasharray": "3 3" }) +
    boundWords(frame, bound, seconds(now.compute), isRight) +
    plot(x, y, wide, tall, headOf(curve, high), curves, ...scales) +
    text(0, y + tall + 16, "cap, MiB", "small grey") +
    endWords(scene, frame, up) +
    points(scene, at, (k) => [across(caps[k]), up(curve[k])], { high, bound, wide }).join("")
  );
}
