// Schedules for a slide: thick bars that say which microbatch, and how many a stage holds where it is fullest.

import { hue, ink } from "../figure/colours.js";
import { faint, line, rect, tag, text } from "../figure/markup.js";
import { most, sum } from "../figure/numbers.js";
import { ticks } from "../figure/units.js";
import { ended } from "./operations.js";

const HIGH = 338; // pixels of the picture, before the slide enlarges it
const HEAD = 26;
const FOOT = 30;
const APART = 10;
const KEY = 32; // of the picture's key
const LEFT = 84;
const RIGHT = 14;
const DIGIT = 0.64; // of a size, how wide a digit is
const AROUND = 5; // and what is free around letters
const SIZES = [20, 18, 16, 15, 14, 13.3]; // of the letters in operations: 37 to 24 pixels on the slide
const AHEAD = hue("forward");
const BACK = hue("backward");

const sized = (pixels, more = "") => ({ style: `font-size:${pixels}px;${more}` }); // all others: slide_figures.css
const NAME = 18; // of heads, and of what a stage holds
const BOLD = sized(NAME, "font-weight:650");

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
  if (!forward.size || !backward.size) return { forward: NOTHING, backward: NOTHING };
  return { forward, backward: { ...backward, size: Math.min(forward.size, backward.size) } };
}

/** One operation. */
function bar(laid, s, at, { y, tall, names, now }) {
  const [given, start, end] = laid.stages[s][at];
  const [from, to] = [laid.x(start), laid.x(end)];
  const isForward = given[0] === "F";
  const wide = to - from;
  const fill = isForward ? AHEAD : BACK;
  const hooks = { "data-op": `${s}:${given.slice(0, 2).join("")}`, "data-pick": String([laid.which, s, at]) };
  let cell = rect(from, y, wide - 1, tall, { fill, rx: 2, ...hooks });
  if (given[2] % 2) cell += rect(from, y + tall - 7, wide - 1, 7, { fill: "#0005", "pointer-events": "none" });
  const { words, size } = isForward ? names.forward : names.backward;
  const fits = wide > DIGIT * size * words(given).length;
  if (fits) {
    cell += text((from + to) / 2, y + tall / 2 + 0.36 * size, words(given), "middle", sized(size, ink(fill).style));
  }
  return faint(start > now, cell);
}

/** What bars mean: in words, as on slides of one schedule. */
function key(y) {
  const entries = [
    [0, AHEAD, "0", "forward"],
    [152, BACK, "B0", "backward"],
    [320, "url(#lk-idle0)", "", "idle"],
  ];
  return entries
    .map(([x, fill, letters, words]) => {
      const block = rect(x, y - 18, 34, 23, { fill, rx: 2 });
      return block + text(x + 17, y, letters, "middle", sized(18, ink(fill).style)) + text(x + 42, y, words, "");
    })
    .join("");
}

/** [stage, time] in the middle of the first gap with room for `words` of the first stage that is the fullest. */
function fullest({ stages, held, peaks, x }, words) {
  const room = 0.66 * NAME * words.length;
  for (const [s, row] of stages.entries()) {
    for (let k = 1; k < row.length && peaks[s] === most(peaks); k++) {
      const [from, to] = [row[k - 1][2], row[k][1]];
      const now = held[s].findLast(([time]) => time <= from)[1];
      if (now === peaks[s] && x(to) - x(from) > room) return [s, (from + to) / 2];
    }
  }
  return [-1];
}

/** A schedule from y on: its name, how long it takes, how much of that its stages are idle, and what each runs. */
function drawn(laid, y, pitch, { names, now }) {
  const { stages, x, unit, placed, bubble, peaks, name, edited } = laid;
  const tall = pitch - 3;
  const peak = most(peaks);
  const words = `holds ${+peak.toPrecision(3)}`;
  const [full, at] = fullest(laid, words);
  const facts = `${unit(ended(stages))}${placed ? "" : " turns"}, idle ${Math.round(100 * bubble)} %`;
  const head = `${name}${edited ? ", edited" : ""}: ${facts}${full < 0 ? `, ${words}` : ""}`;
  const below = stages.map((row, s) => {
    const top = y + HEAD + s * pitch;
    const base = top + tall / 2 + 6;
    const ground = rect(LEFT, top, x(ended(stages)) - LEFT, tall, { fill: "url(#lk-idle0)" });
    const work = row.map((_, k) => bar(laid, s, k, { y: top, tall, names, now })).join("");
    const room = 0.66 * NAME * words.length;
    const mark =
      s === full &&
      rect(x(at) - room / 2, base - 17, room, 22, { fill: "#fff" }) +
        text(x(at), base, words, "middle", { ...BOLD, "data-peak": peak });
    return text(0, base, `stage ${s}`, "") + ground + work + (mark || "");
  });
  return text(0, y + 19, head, "", { ...BOLD, "data-bubble": bubble.toFixed(6) }) + below.join("");
}

/** { svg, height } of schedules that all can run, below each other, whole, on one axis. */
export function hallPicture(all, { width, now }, defined) {
  const end = most(all.map(({ reach }) => reach));
  const x = (time) => LEFT + (time / end) * (width - RIGHT - LEFT);
  const shown = all.map((laid) => ({ ...laid, x }));
  const [names] = shown.map(namesOf).sort((a, b) => a.forward.size - b.forward.size); // letters of one size
  const { placed, unit } = all[0];
  const pitch = Math.min((HIGH - KEY - FOOT - all.length * (HEAD + APART)) / sum(all.map(({ p }) => p)), 50);
  let svg = defined + key(20);
  let y = KEY;
  for (const laid of shown) {
    svg += drawn(laid, y, pitch, { names, now });
    y += HEAD + laid.p * pitch + APART;
  }
  y -= APART;
  if (now < Infinity) svg += line(x(now), KEY + HEAD, x(now), y, "now");
  svg += text(0, y + 22, placed ? "time" : "turns", "") + line(LEFT, y, x(end), y);
  for (const tick of ticks(end, 6)) svg += text(x(tick), y + 22, tick ? unit(tick) : 0, "middle");
  return { svg: tag("g", { class: "hall" }, svg), height: y + FOOT };
}
