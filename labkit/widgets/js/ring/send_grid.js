// Which chunk every rank sends in every step: a row for each rank, a column for each step.

import { ink } from "../figure/colours.js";
import { line, rect, text } from "../figure/markup.js";
import { range } from "../figure/numbers.js";
import { arrived, chunkName, fillOf } from "./chunks.js";

const LEFT = 52;

function sendTitle(s, rank, [, chunk, target, into, wrong]) {
  const expected = wrong ? `; expected ${chunkName(into)}, got ${chunkName(chunk)}` : "";
  return `step ${s}: rank ${rank} sends ${chunkName(chunk)} to rank ${target}${expected}`;
}

/** What one rank sends in one step. */
function gridCell(step, s, rank, { n, x, wide, tall, blamed }) {
  const sends = step.sends.filter(([source]) => source === rank);
  const held = step.before?.[rank];
  const kind = sends.map((send) => blamed.send(s, send)).find(Boolean) ?? "";
  const said = ([, chunk, , into]) => (wide > 24 ? arrived(chunk, into) : chunkName(chunk));
  const sign = kind.includes("culprit") && !sends.some((send) => send[4]) ? "!" : "";
  const words = sends.map(said).join(" ") + sign;
  const mask = sends.length && held ? (held[sends[0][1]]?.[0] ?? 0) : 0;
  const fill = sends.length ? fillOf(Math.max(sends[0][1], 0), mask, n) : "none";
  const looks = { fill, class: kind || "edge", "data-grid": `${s}:${rank}`, "data-step": s };
  const title = sends.map((send) => sendTitle(s, rank, send)).join("; ");
  const crowded = wide < 12 && (held?.length > 10 || wide < 9);
  const size = `middle ${wide > 30 ? "small" : "tiny"}`;
  return (
    rect(x(s) + 1, 26 + rank * tall, wide - 2, tall - 2, looks, title) +
    text(x(s) + wide / 2, 30 + rank * tall + tall / 2, crowded ? "" : words, size, fill !== "none" && ink(fill))
  );
}

/** The number of a step; of narrow columns every fifth, and the current one. */
function stepName(s, now, wide) {
  const hidden = wide < 15 && s !== now && (s % 5 || Math.abs(s - now) < 2);
  return hidden ? "" : s;
}

/**
 * { svg, height }; `split` is the first step of the second half, now the current one, `blamed` what went wrong, `high`
 * rows' pixels.
 */
export function sendGrid(steps, n, now, width, { split, blamed, high }) {
  const parted = split > 0 && split < steps.length;
  const gap = parted ? 8 : 0;
  const wide = Math.min((width - LEFT - gap) / Math.max(steps.length, 1), 64);
  const tall = high ?? (n > 8 ? 17 : 25);
  const x = (s) => LEFT + s * wide + (s >= split ? gap : 0);
  const names = range(n).map((rank) => text(0, 30 + rank * tall + tall / 2, `rank ${rank}`));
  const columns = steps.map((step, s) => {
    const cells = range(n).map((rank) => gridCell(step, s, rank, { n, x, wide, tall, blamed }));
    return cells.join("") + text(x(s) + wide / 2, 19, stepName(s, now, wide), "middle small");
  });
  let svg = text(0, 19, "step", "small grey") + names.join("") + columns.join("");
  if (now < steps.length) svg += rect(x(now), 4, wide, 24 + n * tall, { fill: "none", class: "now", rx: 3 });
  if (parted) svg += [0, 3].map((by) => line(x(split) - 6 + by, 22, x(split) - 6 + by, 26 + n * tall)).join("");
  return { svg, height: 34 + n * tall };
}
