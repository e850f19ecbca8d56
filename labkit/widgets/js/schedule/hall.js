// Schedules for a slide: thick bars that say which microbatch, and beside them what a stage holds at most.

import { hue, ink } from "../figure/colours.js";
import { faint, line, rect, tag, text } from "../figure/markup.js";
import { most } from "../figure/numbers.js";
import { ticks } from "../figure/units.js";
import { ended } from "./operations.js";

const HIGH = 300; // pixels of the picture, before the slide enlarges it
const HEAD = 27;
const FOOT = 32;
const APART = 6;
const LEFT = 82;
const HELD = 34; // right of the rows
const DIGIT = 0.64; // of a size, how wide a digit is
const AROUND = 2; // and what is free around letters
const SIZES = [20, 18, 16, 14, 13.3]; // of the letters in operations: 37 to 24 pixels on the slide
const LARGE = SIZES.slice(0, 2);
const AHEAD = hue("forward");
const BACK = hue("backward");

const sized = (pixels, more = "") => ({ style: `font-size:${pixels}px;${more}` }); // all others: slide_figures.css
const BOLD = sized(20, "font-weight:650");

const named = ([kind, microbatch]) => `${kind}${microbatch}`;
const brief = (given) => String(given[1]);
const NOTHING = { words: () => "", size: 0 };

/** What operations of these kinds say: the first of these ways and sizes for which nine in ten have room. */
function saidIn(all, kinds, ways) {
  const own = all.flatMap((laid) =>
    laid.stages
      .flat()
      .flatMap(([given, from, to]) => (kinds.includes(given[0]) ? [[given, laid.x(to) - laid.x(from)]] : [])),
  );
  const each = ways.flatMap(([words, sizes]) => sizes.map((size) => ({ words, size })));
  const fits = ({ words, size }) =>
    own.filter(([given, wide]) => wide > DIGIT * size * words(given).length + AROUND).length > 0.9 * own.length;
  return each.find(fits) ?? NOTHING;
}

/** A microbatch's number, in a backward after its letter; nothing in any where it is small and colours are enough. */
function namesOf(all) {
  const sizes = all.some(({ stages }) => stages.flat().some(([[kind]]) => kind === "W")) ? SIZES : LARGE;
  const forward = saidIn(all, "F", [[brief, sizes]]);
  const backward = saidIn(all, "BIW", [[named, sizes]]);
  return forward.size * backward.size ? { forward, backward } : { forward: NOTHING, backward: NOTHING };
}

/** One operation. */
function bar(laid, s, at, { y, tall, names, now }) {
  const [given, start, end] = laid.stages[s][at];
  const [from, to] = [laid.x(start), laid.x(end)];
  const isForward = given[0] === "F";
  const wide = to - from;
  const fill = isForward ? AHEAD : BACK;
  const hooks = { "data-op": `${s}:${given.slice(0, 2).join("")}`, "data-pick": String([laid.which, s, at]) };
  let cell = rect(from, y, wide, tall, { fill, class: wide > 5 && "edge", ...hooks });
  if (given[2] % 2) cell += rect(from, y + tall - 7, wide, 7, { fill: "#0005", "pointer-events": "none" });
  const { words, size } = isForward ? names.forward : names.backward;
  const fits = wide > DIGIT * size * words(given).length;
  if (fits) {
    cell += text((from + to) / 2, y + tall / 2 + 0.36 * size, words(given), "middle", sized(size, ink(fill).style));
  }
  return faint(start > now, cell);
}

/** What colours and letters mean. */
function keyOf(x, y, names) {
  const entry = (at, words, fill, letter) =>
    rect(at, y - 14, 24, 18, { fill, class: "edge" }) +
    text(at + 12, y, letter, "middle", sized(14, ink(fill).style)) +
    text(at + 30, y, words, "");
  return (
    entry(x, "forward", AHEAD, names.forward.words(["F", 0])) +
    entry(x + 128, "backward", BACK, names.backward.words(["B", 0])) +
    entry(x + 268, "idle", "url(#lk-idle0)", "")
  );
}

/** How long a schedule takes and how much of that its stages are idle, beside its name. */
function headOf(laid, y) {
  const end = laid.unit(ended(laid.stages));
  const facts = `${end}${laid.placed ? "" : " turns"}, idle ${Math.round(100 * laid.bubble)} %`;
  const hook = { ...BOLD, "data-bubble": laid.bubble.toFixed(6) };
  return text(0, y, `${laid.name}${laid.edited ? ", edited" : ""}: ${facts}`, "", hook);
}

/** { svg, height } of schedules that all can run, on one axis. */
export function hallPicture(all, scene, defined) {
  const { width, now } = scene;
  const end = most(all.map(({ reach }) => reach));
  const right = width - HELD;
  const shown = all.map((laid) => ({ ...laid, x: (time) => LEFT + (time / end) * (right - LEFT) }));
  const names = namesOf(shown);
  const rows = shown.reduce((sum, { p }) => sum + p, 0);
  const room = HIGH - FOOT - (shown.length + 1) * HEAD - (shown.length - 1) * APART;
  const pitch = Math.min(room / rows, 50);
  const tall = pitch - 3;
  let svg = defined + keyOf(0, 17, names) + text(width - 4, 17, "holds at most", "end");
  let y = HEAD;
  shown.forEach((laid, which) => {
    if (which) y += APART;
    svg += headOf(laid, y + 18);
    y += HEAD;
    laid.stages.forEach((row, s) => {
      svg += text(0, y + tall / 2 + 6, `stage ${s}`, "");
      svg += rect(laid.x(0), y, laid.x(ended(laid.stages)) - laid.x(0), tall, { fill: "url(#lk-idle0)" });
      svg += row.map((_, k) => bar(laid, s, k, { y, tall, names, now })).join("");
      const peak = laid.peaks[s]; // microbatches that it holds at most
      svg += text(width - 4, y + tall / 2 + 6.5, +peak.toPrecision(3), "end", { ...BOLD, "data-peak": peak });
      y += pitch;
    });
    if (now < Infinity) svg += line(laid.x(now), y - laid.p * pitch, laid.x(now), y, "now");
  });
  const { x, placed, unit } = shown.at(-1);
  svg += text(0, y + 22, placed ? "time" : "turns", "") + line(x(0), y, x(end), y);
  for (const tick of ticks(end, 6)) svg += text(x(tick), y + 22, tick ? unit(tick) : 0, "middle");
  return { svg: tag("g", { class: "hall" }, svg), height: y + FOOT };
}
