// Schedules for a slide: thick bars that say which microbatch, in letters of one size (all others: slide_figures.css).

import { ink } from "../figure/colours.js";
import { faint, line, rect, tag, text } from "../figure/markup.js";
import { least, most, sum } from "../figure/numbers.js";
import { ticks } from "../figure/units.js";
import { ended, turnsOf } from "./operations.js";
import { fillOf, ODD, STRIPES } from "./stage_row.js";

const HIGH = 300; // pixels of the picture, before the slide enlarges it
const HEAD = 26;
const FOOT = 28;
const APART = 10;
const KEY = 326; // how wide the picture's key is
const LEFT = 74;
const RIGHT = 96; // of what stages hold
const BOLD = "font-weight:650";
const NEAR = 60; // pixels around an end in which no round number stands
const DIGIT = 0.65; // of a size, how wide a letter is
const AROUND = 2; // and what is free around letters
const [LEAST, MOST] = [14, 20]; // of the letters in operations: 25 and 36 pixels on the slide

/** A microbatch's number, in a backward after its letter. */
const wordsOf = ([kind, microbatch]) => `${kind === "F" ? "" : kind}${microbatch}`;

/** The size of letters for which nine in ten operations have room; 0 if it were too small. */
function sizeIn({ stages, x }) {
  const sizes = stages
    .flat()
    .map(([given, from, to]) => (x(to) - x(from) - AROUND) / DIGIT / wordsOf(given).length)
    .sort((a, b) => a - b);
  const size = Math.min(sizes[Math.floor(sizes.length / 10)], MOST);
  return size < LEAST ? 0 : size;
}

/** One operation. */
function bar(laid, s, at, { y, tall, size, now }) {
  const [given, start, end] = laid.stages[s][at];
  const [from, to] = [laid.x(start), laid.x(end)];
  const wide = to - from;
  const fill = fillOf(given[0]);
  const hooks = { "data-op": `${s}:${given.slice(0, 2).join("")}`, "data-pick": String([laid.which, s, at]) };
  let cell = rect(from, y, wide - 0.6, tall, { fill, rx: 2, ...hooks });
  if (given[2] % 2) cell += rect(from, y + tall - 7, wide - 0.6, 7, ODD);
  const words = wordsOf(given);
  if (size && wide > DIGIT * size * words.length) {
    const style = `font-size:${size}px;${ink(fill).style}`;
    cell += text((from + to) / 2, y + tall / 2 + 0.36 * size, words, "middle", { style });
  }
  return faint(start > now, cell);
}

/** What bars mean, at the right edge of what is drawn; in letters where bars have some. */
function key(width, size) {
  const entries = [
    [KEY, fillOf("F"), size && "0", "forward"],
    [206, fillOf("B"), size && "B0", "backward"],
    [70, STRIPES, "", "idle"],
  ];
  return entries
    .map(([left, fill, letters, words]) => {
      const x = width - RIGHT - left;
      const block = rect(x, 2, 30, 21, { fill, rx: 2 });
      return block + text(x + 15, 19, letters || "", "middle", ink(fill)) + text(x + 35, 19, words, "");
    })
    .join("");
}

/** A schedule's name and how long it takes. */
const headOf = (laid) => `${laid.name}${laid.edited ? ", edited" : ""}: ${turnsOf(laid, ended(laid.stages))}`;

/** A schedule from y on: its head, what each stage runs, and how many microbatches it holds at most. */
function drawn(laid, y, pitch, { size, now, width }) {
  const { stages, x, peaks } = laid;
  const tall = pitch - 3;
  const below = stages.map((row, s) => {
    const top = y + HEAD + s * pitch;
    const middle = top + tall / 2 + 6;
    const ground = rect(LEFT, top, x(ended(stages)) - LEFT, tall, { fill: STRIPES });
    const work = row.map((_, k) => bar(laid, s, k, { y: top, tall, size, now })).join("");
    const held = text(width, middle, `holds ${+peaks[s].toPrecision(3)}`, "end", { style: BOLD });
    return text(0, middle, `stage ${s}`, "") + ground + work + held;
  });
  return text(0, y + 19, headOf(laid), "", { style: BOLD }) + below.join("");
}

/** Times under schedules: where each ends, and round numbers that are not near one. */
function axisOf(all, x, end, y) {
  const { unit, placed } = all[0];
  const ends = all.map(({ stages }) => ended(stages));
  let svg = text(0, y + 22, placed ? "time" : "turns", "") + line(LEFT, y, x(end), y);
  for (const time of new Set([...ticks(end, 6), ...ends])) {
    const isEnd = ends.includes(time);
    if (ends.some((each) => Math.abs(x(each) - x(time)) < NEAR && !(isEnd && each <= time))) continue;
    const anchor = x(end) - x(time) < NEAR ? "end" : "middle"; // nothing below the slide's number
    svg += text(x(time), y + 22, time && unit(time), anchor, { style: isEnd && BOLD });
  }
  return svg;
}

/** { svg, height } of schedules that all can run, below each other, whole, on one axis. */
export function hallPicture(all, { width, now }, defined) {
  const end = most(all.map(({ reach }) => reach));
  const x = (time) => LEFT + (time / end) * (width - RIGHT - LEFT);
  const shown = all.map((laid) => ({ ...laid, x }));
  const size = least(shown.map(sizeIn)); // the same in all
  let y = 10 * headOf(shown[0]).length > width - KEY - RIGHT ? HEAD : 0; // beside the first head, where there is room
  const pitch = Math.min((HIGH - y - FOOT - all.length * (HEAD + APART)) / sum(all.map(({ p }) => p)), 50);
  let svg = defined + key(width, size);
  for (const laid of shown) {
    svg += drawn(laid, y, pitch, { size, now, width });
    y += HEAD + laid.p * pitch + APART;
  }
  y -= APART;
  if (now < Infinity) svg += line(x(now), HEAD, x(now), y, "now");
  svg += axisOf(shown, x, end, y);
  return { svg: tag("g", { class: "hall" }, svg), height: y + FOOT };
}
