// Schedules for a slide: thick bars that say which microbatch, and beside them what a stage holds at most.

import { hue, ink } from "../figure/colours.js";
import { faint, line, rect, tag, text } from "../figure/markup.js";
import { most, sum } from "../figure/numbers.js";
import { ticks } from "../figure/units.js";
import { ended } from "./operations.js";

const HIGH = 284; // pixels of the picture, before the slide enlarges it
const HEAD = 27;
const FOOT = 32;
const APART = 8;
const SUM = 30; // of a schedule that is one bar
const LEFT = 82;
const HELD = 38; // right of the rows
const DIGIT = 0.64; // of a size, how wide a digit is
const AROUND = 1.5; // and what is free around letters
const SIZES = [20, 18, 16, 15, 14, 13.3]; // of the letters in operations: 37 to 24 pixels on the slide
const AHEAD = hue("forward");
const BACK = hue("backward");

const sized = (pixels, more = "") => ({ style: `font-size:${pixels}px;${more}` }); // all others: slide_figures.css
const BOLD = sized(20, "font-weight:650");

const named = ([kind, microbatch]) => `${kind}${microbatch}`;
const brief = (given) => String(given[1]);
const NOTHING = { words: () => "", size: 0 };

/** What operations of these kinds say: in the first of these sizes for which nine in ten have room. */
function saidIn({ stages, x }, kinds, words) {
  const own = stages.flat().filter(([[kind]]) => kinds.includes(kind));
  const fits = (size) =>
    own.filter(([given, from, to]) => x(to) - x(from) > DIGIT * size * words(given).length + AROUND).length >
    0.9 * own.length;
  return { words, size: SIZES.find(fits) };
}

/** A microbatch's number, in a backward after its letter; nothing in any where one of them has no room. */
function namesOf(laid) {
  const [forward, backward] = [saidIn(laid, "F", brief), saidIn(laid, "BIW", named)];
  return forward.size && backward.size ? { forward, backward } : { forward: NOTHING, backward: NOTHING };
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

/** How long a schedule takes and how much of that its stages are idle, beside its name. */
function headOf(laid, y) {
  const end = laid.unit(ended(laid.stages));
  const facts = `${end}${laid.placed ? "" : " turns"}, idle ${Math.round(100 * laid.bubble)} %`;
  const hook = { ...BOLD, "data-bubble": laid.bubble.toFixed(6) };
  return text(0, y, `${laid.name}${laid.edited ? ", edited" : ""}: ${facts}`, "", hook);
}

/** A schedule as one bar, in words: what the time of a stage goes into, and the microbatches that one holds at most. */
function summed({ stages, x, peaks }, y, held) {
  const lasts = (isForward) =>
    sum(stages[0].map(([[kind], from, to]) => ((kind === "F") === isForward ? to - from : 0)));
  const cuts = [lasts(true), lasts(true) + lasts(false), ended(stages)].map(x);
  let a = LEFT;
  let svg = text(0, y + 21, "a stage", "") + held(most(peaks), y + 21);
  [AHEAD, BACK, "url(#lk-idle0)"].forEach((fill, k) => {
    const words = ["forward", "backward", "idle"][k];
    const look = k < 2 ? ink(fill).style : "paint-order:stroke;stroke:#fff;stroke-width:8";
    svg += rect(a, y, cuts[k] - a, SUM, { fill, class: "edge" });
    if (cuts[k] - a > 12 * words.length) svg += text((a + cuts[k]) / 2, y + 21, words, "middle", sized(20, look));
    a = cuts[k];
  });
  return svg;
}

/** { svg, height } of schedules that all can run, on one axis: the first, or the only one, as a bar, the last whole. */
export function hallPicture(all, scene, defined) {
  const { width, now } = scene;
  const end = most(all.map(({ reach }) => reach));
  const x = (time) => LEFT + (time / end) * (width - HELD - LEFT);
  const shown = all.map((laid) => ({ ...laid, x }));
  const last = shown.pop();
  const names = namesOf(last);
  const { p, stages, placed, unit } = last;
  const held = (peak, at) => text(width - 4, at, +peak.toPrecision(3), "end", { ...BOLD, "data-peak": peak });
  let svg = defined + text(width - 4, 18, "holds at most", "end");
  let y = 0;
  for (const laid of shown) {
    svg += headOf(laid, y + 18) + summed(laid, y + HEAD, held);
    y += HEAD + SUM + APART;
  }
  svg += headOf(last, y + 18);
  y += HEAD;
  if (!shown.length) {
    svg += summed(last, y, held);
    y += SUM + APART;
  }
  const pitch = Math.min((HIGH - FOOT - y) / p, 50);
  const tall = pitch - 4;
  stages.forEach((row, s) => {
    svg += text(0, y + tall / 2 + 6, `stage ${s}`, "");
    svg += rect(LEFT, y, x(ended(stages)) - LEFT, tall, { fill: "url(#lk-idle0)" });
    svg += row.map((_, k) => bar(last, s, k, { y, tall, names, now })).join("") + held(last.peaks[s], y + tall / 2 + 6);
    y += pitch;
  });
  if (now < Infinity) svg += line(x(now), y - p * pitch, x(now), y, "now");
  svg += text(0, y + 22, placed ? "time" : "turns", "") + line(LEFT, y, x(end), y);
  for (const tick of ticks(end, 6)) svg += text(x(tick), y + 22, tick ? unit(tick) : 0, "middle");
  return { svg: tag("g", { class: "hall" }, svg), height: y + FOOT };
}
