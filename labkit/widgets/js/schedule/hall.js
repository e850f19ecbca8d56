// Schedules for a slide: thick bars that say which microbatch, and beside them what a stage holds at most.

import { hue, ink } from "../figure/colours.js";
import { faint, line, rect, tag, text } from "../figure/markup.js";
import { most } from "../figure/numbers.js";
import { axis } from "../figure/plot.js";
import { ended } from "./operations.js";

const HIGH = 296; // pixels of the picture, before the slide enlarges it
const [HEAD, FOOT, APART] = [28, 26, 8];
const LEFT = 74;
const HELD = 52; // right of the rows
const DIGIT = 0.64; // of a size, how wide a digit is
const AROUND = 3; // and what is free around letters
const SIZES = [18, 16]; // of the letters in operations: 33 and 29 pixels on the slide
const WORDS = 18;
const FILL = { F: hue("forward"), B: hue("backward"), I: hue("backward"), W: hue("backward") };

const sized = (pixels, more = "") => ({ style: `font-size:${pixels}px;${more}` });

const named = ([kind, microbatch]) => `${kind}${microbatch}`;
const plain = ([, microbatch]) => String(microbatch);
const NOTHING = { words: () => "", size: 0 };

/** What operations of these kinds say and how large: the first of the ways for which nine in ten have room. */
function saidIn(all, kinds, ways) {
  const own = all.flatMap((laid) =>
    laid.stages
      .flat()
      .flatMap(([given, from, to]) => (kinds.includes(given[0]) ? [[given, laid.x(to) - laid.x(from)]] : [])),
  );
  const each = ways.flatMap((words) => SIZES.map((size) => ({ words, size })));
  const fits = ({ words, size }) =>
    own.filter(([given, wide]) => wide > DIGIT * size * words(given).length + AROUND).length > 0.9 * own.length;
  return each.find(fits) ?? NOTHING;
}

/** A microbatch's number, with a B before it in a backward, so that print in grey tells them apart; or in none. */
function namesOf(all) {
  const names = { forward: saidIn(all, "F", [plain]), backward: saidIn(all, "BIW", [named]) };
  return Object.values(names).includes(NOTHING) ? { forward: NOTHING, backward: NOTHING } : names;
}

/** One operation. */
function bar(laid, s, at, { y, tall, names, now }) {
  const [given, start, end] = laid.stages[s][at];
  const [from, to] = [laid.x(start), laid.x(end)];
  const isForward = given[0] === "F";
  const wide = to - from;
  const fill = FILL[given[0]];
  const hooks = { "data-op": `${s}:${given.slice(0, 2).join("")}`, "data-pick": String([laid.which, s, at]) };
  let cell = rect(from, y, wide, tall, { fill, class: wide > 5 ? "edge" : undefined, ...hooks });
  if (given[2] % 2) cell += rect(from, y + tall - 7, wide, 7, { fill: "#0005", "pointer-events": "none" });
  const { words, size } = isForward ? names.forward : names.backward;
  const fits = wide > DIGIT * size * words(given).length;
  if (fits) {
    cell += text((from + to) / 2, y + tall / 2 + 0.36 * size, words(given), "middle", sized(size, ink(fill).style));
  }
  return faint(start > now, cell);
}

/** How many microbatches a stage holds at most. */
function heldBy(peak, x, y, tall) {
  const number = Number(peak.toPrecision(3));
  return tag("g", { "data-peak": peak }, text(x, y + tall / 2 + 6.5, number, "end", sized(WORDS, "font-weight:650")));
}

/** What colours and letters mean. */
function keyOf(x, y, names) {
  const entry = (at, words, fill, letter) =>
    rect(at, y - 14, 24, 18, { fill, class: "edge" }) +
    (letter ? text(at + 12, y, letter, "middle", sized(14, ink(fill).style)) : "") +
    text(at + 30, y, words, "", sized(16));
  const isLettered = names.backward !== NOTHING;
  return (
    entry(x, "forward", FILL.F, isLettered && "0") +
    entry(x + 104, "backward", FILL.B, isLettered && "B0") +
    entry(x + 222, "idle", "url(#lk-idle0)")
  );
}

/** { svg, height } of schedules that all can run, on one axis. */
export function hallPicture(all, scene, defined) {
  const { width, now } = scene;
  const end = most(all.map(({ reach }) => reach));
  const right = width - HELD - 10;
  const shown = all.map((laid) => ({ ...laid, x: (time) => LEFT + (time / end) * (right - LEFT) }));
  const names = namesOf(shown);
  const rows = shown.reduce((sum, { p }) => sum + p, 0);
  const room = HIGH - FOOT - shown.length * HEAD - (shown.length - 1) * APART;
  const pitch = Math.min(room / rows, 50);
  const tall = pitch - 3;
  let [svg, y] = [defined, 0];
  shown.forEach((laid, which) => {
    const idle = `idle ${Math.round(100 * laid.bubble)} %`;
    svg += text(0, y + 19, laid.name + (laid.edited ? ", edited" : ""), "", sized(WORDS, "font-weight:650"));
    const at = Math.max(LEFT, 11 * laid.name.length + 14);
    svg += text(at, y + 19, idle, "", { ...sized(WORDS), "data-bubble": laid.bubble.toFixed(6) });
    if (!which) svg += keyOf(right - 290, y + 19, names);
    svg += text(width - 4, y + 19, "holds", "end", sized(16));
    y += HEAD;
    laid.stages.forEach((row, s) => {
      svg += text(0, y + tall / 2 + 6, `stage ${s}`, "", sized(16));
      svg += rect(laid.x(0), y, laid.x(ended(laid.stages)) - laid.x(0), tall, { fill: "url(#lk-idle0)" });
      svg += row.map((_, k) => bar(laid, s, k, { y, tall, names, now })).join("");
      svg += heldBy(laid.peaks[s], width - 4, y, tall);
      y += pitch;
    });
    if (now < Infinity) svg += line(laid.x(now), y - laid.p * pitch, laid.x(now), y, "now");
    y += APART;
  });
  const [last] = shown.slice(-1);
  svg += text(0, y + 14, last.placed ? "time" : "turns", "", sized(16));
  svg += axis(LEFT, y - 4, right - LEFT, end, last.unit);
  return { svg: tag("g", { class: "hall" }, svg), height: y + FOOT - APART };
}
