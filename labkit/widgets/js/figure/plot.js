// Lines over two axes, the axis under a picture, and a legend.

import { strokeOf } from "./colours.js";
import { line, tag, text } from "./markup.js";
import { range } from "./numbers.js";
import { ticks } from "./units.js";

const APART = 13; // pixels from one name to the next
const LETTER = 6; // pixels of one beside an axis
const PATCH = 14; // pixels of a legend's patch

/** A number beside an axis; nothing needs no unit. */
const onAxis = (value, format) => (value ? format(value) : "0");

/**
 * @typedef {[from: number, to: number, format: (value: number) => string, isLog?: boolean, marks?: number[]]} Scale
 * @typedef {[u: number, v: number]} Point
 * @typedef {[points: Point[], style: string, attributes?: object, marked?: Point, name?: string]} Curve
 */

/** The line under a picture, with its unit. */
export function axis(x, y, width, end, format) {
  const marks = ticks(end, Math.max(3, Math.floor(width / 90))).map((tick) => {
    const at = x + (tick / end) * width;
    return line(at, y, at, y + 4) + text(at, y + 16, onAxis(tick, format), "small middle");
  });
  return line(x, y, x + width, y) + marks.join("");
}

/** Where a value lies on a scale: 0 at its begin, 1 at its end. */
function shareOn([from, to, , logarithmic], value) {
  const share = logarithmic ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from);
  return share || 0; // a scale without a length has no shares
}

/** Round numbers between two, at most six. */
function levelsIn(from, to) {
  const [, step = to] = ticks(to - from, 5);
  const first = Math.ceil(from / step - 1e-9);
  return range(Math.floor(to / step + 1e-9) - first + 1).map((k) => (first + k) * step);
}

/** The round numbers of a scale; on a logarithmic one powers of ten, 2 and 5 times too where `room` pixels hold one. */
function marksOn([from, to, , logarithmic, marks], length, room) {
  if (marks) return marks;
  const apart = logarithmic ? length / Math.log10(to / from) : 0; // pixels of a power of ten
  const times = apart * Math.log10(2) > room ? [1, 2, 5] : [1];
  const powers = () => range(40).flatMap((k) => times.map((digit) => digit * 10 ** (k - 20)));
  const round = logarithmic ? powers().filter((_, k) => apart > room || k % 2) : levelsIn(from, to);
  return round.filter((value) => value >= from * 0.999 && value <= to * 1.001);
}

/** Squeeze a title that would not fit over the plot. */
const squeezed = (title, room) => 5.8 * title.length > room && { textLength: room, lengthAdjust: "spacingAndGlyphs" };

/**
 * Lines in a frame, with their names beside their ends.
 *
 * @param {Curve[]} curves
 * @param {Scale} across
 * @param {Scale} up
 */
export function plot(x, y, width, height, title, curves, across, up) {
  const place = ([u, v]) => {
    const level = Math.min(Math.max(shareOn(up, v), 0), 1);
    return [x + width * shareOn(across, u), y + height * (1 - level)].map((each) => Number(each.toFixed(1)));
  };
  const path = (seen) => `M${seen.map((point) => place(point).join(" ")).join("L")}${seen.length > 1 ? "" : "h4"}`;
  const drawn = curves.map(([points, style, more, marked]) => {
    const seen = points.filter(([u]) => u <= across[1] * 1.001);
    const curve = seen.length ? tag("path", { d: path(seen), style, ...more }) : "";
    if (!marked) return curve;
    const [cx, cy] = place(marked);
    return curve + tag("circle", { cx, cy, r: 4, style: style.replace("fill:none", "fill:Canvas") });
  });
  const levels = marksOn(up, height, APART).map((value) => {
    const at = place([across[0], value])[1];
    return line(x, at, x + width, at, "soft") + text(x - 6, at + 4, onAxis(value, up[2]), "small end");
  });
  const widest = Math.max(...across.slice(0, 2).map((value) => onAxis(value, across[2]).length));
  const columns = marksOn(across, width, LETTER * (widest + 2)).map((value) =>
    text(place([value, up[0]])[0], y + height + 16, onAxis(value, across[2]), "small middle"),
  );
  const ends = curves.flatMap(([points, style, , , name]) => {
    const last = points.findLast(([u]) => u <= across[1] * 1.001);
    return name && last ? [[place(last)[1], name, style]] : [];
  });
  const named = namesAt(ends, x + width, y, y + height);
  const heading = title && text(0, y - 10, title, "small grey", squeezed(title, x + width));
  return (
    heading + levels.join("") + line(x, y + height, x + width, y + height) + columns.join("") + drawn.join("") + named
  );
}

/** The pixels that names of lines take beside a plot, where the picture is wide enough for that; else 0. */
export const roomForNames = (width) => (width < 600 ? 0 : 110);

/** Names beside the ends of their lines, each with a piece of it and none over another, between two heights. */
function namesAt(ends, x, low, high) {
  const order = ends.sort(([a], [b]) => a - b);
  let level = low;
  for (const end of order) {
    end[0] = Math.max(end[0], level);
    level = end[0] + APART;
  }
  level = high;
  for (const end of order.reverse()) {
    end[0] = Math.min(end[0], level);
    level = end[0] - APART;
  }
  const piece = (at, style) => line(x + 4, at, x + 20, at, "", { style });
  return order.map(([at, name, style]) => piece(at, style) + text(x + 24, at + 4, name, "small")).join("");
}

/** Names of lines beside a piece of each, from x = 0 on: [markup, height]. */
export function legend(names, y, width) {
  let x = 0;
  let down = 0;
  const entries = names.map((name, k) => {
    const wide = 46 + 6.6 * name.length;
    if (x && x + wide > width) {
      x = 0;
      down += 18;
    }
    const at = x;
    x += wide;
    const piece = line(at, y + down + 8, at + 28, y + down + 8, "", { style: strokeOf(k, 3) });
    return piece + text(at + 33, y + down + 12, name);
  });
  return [entries.join(""), down + 22];
}

/**
 * Words beside what they name, from x = 0 on: [markup, height].
 *
 * @param {Array<[words: string, patch: (x: number, y: number, wide: number, tall: number) => string]>} entries
 */
export function key(entries, y, width) {
  let x = 0;
  let down = 0;
  const drawn = entries.map(([words, patch]) => {
    const wide = PATCH + 24 + 6.2 * words.length;
    if (x && x + wide > width) {
      x = 0;
      down += 18;
    }
    const at = x;
    x += wide;
    return patch(at, y + down, PATCH, 11) + text(at + PATCH + 6, y + down + 10, words, "small grey");
  });
  return [drawn.join(""), down + 20];
}
