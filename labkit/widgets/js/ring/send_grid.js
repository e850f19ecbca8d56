// Which chunk every rank sends in every step: a row for each rank, a column for each step.

import { ink } from "../figure/colours.js";
import { line, rect, tag, text } from "../figure/markup.js";
import { range } from "../figure/numbers.js";
import { arrived, chunkName, fillOf } from "./chunks.js";

const LEFT = 52;

function sendTitle(s, rank, [, chunk, target, into, wrong]) {
  const expected = wrong ? `; expected ${chunkName(into)}, got ${chunkName(chunk)}` : "";
  return `step ${s}: rank ${rank} sends ${chunkName(chunk)} to rank ${target}${expected}`;
}

/** What one rank sends in one step. */
function gridCell(step, s, rank, { n, x, wide, tall, top, blamed, isStill }) {
  const sends = step.sends.filter(([source]) => source === rank);
  const held = step.before?.[rank];
  const kind = sends.map((send) => blamed.send(s, send)).find(Boolean) ?? "";
  const said = ([, chunk, , into]) => (wide > 24 ? arrived(chunk, into) : chunkName(chunk));
  const sign = kind.includes("culprit") && !sends.some((send) => send[4]) ? "!" : "";
  const words = sends.map(said).join(" ") + sign;
  const mask = sends.length && held ? (held[sends[0][1]]?.[0] ?? 0) : 0;
  const all = 2 ** n - 1;
  const isWhole = isStill && mask === all; // from the last row a tint and its full colour are one
  const fill = sends.length ? fillOf(Math.max(sends[0][1], 0), isStill ? all : mask, n) : "none";
  const style = isWhole && "stroke:#000;stroke-width:2";
  const looks = { fill, class: kind || "edge", style, "data-grid": `${s}:${rank}`, "data-step": s };
  const title = sends.map((send) => sendTitle(s, rank, send)).join("; ");
  const crowded = wide < 12 && (held?.length > 10 || wide < 9);
  const size = `middle ${wide > 30 ? "small" : "tiny"}`;
  const [inner, down] = isStill ? [6, 9] : [2, 4]; // frames stand apart
  return (
    rect(x(s) + inner / 2, top + rank * tall, wide - inner, tall - inner, looks, title) +
    text(x(s) + wide / 2, top + down + rank * tall + tall / 2, crowded ? "" : words, size, fill !== "none" && ink(fill))
  );
}

/** The number of a step; of narrow columns every fifth, and the current one. */
function stepName(s, now, wide) {
  const hidden = wide < 15 && s !== now && (s % 5 || Math.abs(s - now) < 2);
  return hidden ? "" : s;
}

/** Columns of `steps` and rows of ranks as markup, `top` pixels down; `x` is where a step's column begins. */
function table(steps, n, now, at) {
  const { x, wide, tall, top, split } = at;
  const names = range(n).map((rank) => text(0, top + 4 + rank * tall + tall / 2, `rank ${rank}`));
  const columns = steps.map((each, s) => {
    const cells = range(n).map((rank) => gridCell(each, s, rank, { n, ...at }));
    return cells.join("") + text(x(s) + wide / 2, top - 7, stepName(s, now, wide), "middle small");
  });
  let svg = text(0, top - 7, "step", "small grey") + names.join("") + columns.join("");
  if (now < steps.length && !at.isStill) {
    svg += rect(x(now), top - 22, wide, 24 + n * tall, { fill: "none", class: "now", rx: 3 });
  }
  if (split > 0 && split < steps.length) {
    svg += [0, 3].map((by) => line(x(split) - 6 + by, top - 4, x(split) - 6 + by, top + n * tall)).join("");
  }
  return svg;
}

/** Where columns begin, from `left` on: those from `split` on a little further right. */
const columnsFrom = (left, wide, split, gap) => (s) => left + s * wide + (s >= split ? gap : 0);

/**
 * { svg, height }; `split` is the first step of the second half, now the current one, `blamed` what went wrong.
 */
export function sendGrid(steps, n, now, width, { split, blamed }) {
  const gap = split > 0 && split < steps.length ? 8 : 0;
  const wide = Math.min((width - LEFT - gap) / Math.max(steps.length, 1), 64);
  const tall = n > 8 ? 17 : 25;
  const x = columnsFrom(LEFT, wide, split, gap);
  return { svg: table(steps, n, now, { x, wide, tall, top: 26, split, blamed }), height: 34 + n * tall };
}

const [HALL, HALLS] = [304, 92]; // pixels of a slide's table, and of its ranks' names, before the slide enlarges them

/** The same for a slide: all of its width and height, each half by its name, and what colours mean. */
export function hallGrid(steps, n, now, width, { split, blamed }) {
  const isParted = split > 0 && split < steps.length;
  const gap = isParted ? 12 : 0;
  const wide = (width - HALLS - gap) / Math.max(steps.length, 1);
  const [top, foot] = [62, 34];
  const tall = (HALL - top - foot) / n;
  const x = columnsFrom(HALLS, wide, split, gap);
  const halves = isParted
    ? text(x(0) + 3, 22, "reduce-scatter", "bold") + text(x(split) + 3, 22, "all-gather", "bold")
    : "";
  const key = "Letter: the chunk sent. Framed: all ranks are in its sum.";
  const svg = table(steps, n, now, { x, wide, tall, top, split, blamed, isStill: true });
  return { svg: tag("g", { class: "hall hall-grid" }, halves + svg + text(0, HALL - 8, key)), height: HALL };
}
