// The ranks in a circle, each with its chunks outside in, and the chunks that are under way.

import { ink, inkOn, letterOf } from "../figure/colours.js";
import { ARROW, rect, tag, text } from "../figure/markup.js";
import { range } from "../figure/numbers.js";
import { arrived, fillOf } from "./chunks.js";
import { count, isComplete, mod } from "./steps.js";

/** Where everything lies in a square picture of this side. */
function measures(n, chunks, side) {
  const spelled = side >= 330 && n <= 8; // "rank 3" has room, not only "r3"
  const outer = side / 2 - (spelled ? 66 : 38);
  const pitch = Math.min((outer - 26) / chunks, 34);
  const beside = (2 * Math.PI * (outer - pitch * (chunks - 1))) / n - 3; // of the innermost chunks
  const cell = Math.min(pitch - (pitch > 9 ? 3 : 1), beside);
  return {
    n,
    spelled,
    outer,
    cell,
    middle: side / 2,
    angle: (rank) => (2 * Math.PI * rank) / n - Math.PI / 2,
    radius: (chunk) => outer - chunk * pitch,
  };
}

function rankName(rank, { n, spelled }) {
  if (spelled) return `rank ${rank}`;
  return n > 8 ? rank : `r${rank}`;
}

function anchor(across) {
  if (across > 0.3) return "";
  return across < -0.3 ? " end" : " middle";
}

/** A rank's name beside its outermost chunk. */
function rankLabel(rank, at) {
  const { n, cell, middle, outer } = at;
  const far = outer + cell / 2 + 6;
  const across = Math.cos(at.angle(rank));
  const down = Math.sin(at.angle(rank));
  const kind = `bold${anchor(across)}${n > 8 ? " small" : ""}`;
  return text(middle + far * across, middle + far * down + 4 + 5 * down, rankName(rank, at), kind);
}

function chunkTitle(rank, chunk, [mask, wrong], n) {
  const ranks = range(n).filter((each) => (mask >> each) & 1);
  const complete = isComplete([mask, wrong], n) ? "; complete" : "";
  const state = wrong ? "; wrong" : complete;
  return `rank ${rank}, chunk ${letterOf(chunk)}: contributions of ranks ${ranks.join(", ")}${state}`;
}

/** The chunk's letter, and how many contributions it holds. */
const wordIn = (chunk, mask, cell) => (cell > 22 ? letterOf(chunk) : "") + count(mask);

/** One chunk: a square with the number of its contributions, framed twice when it has all. */
function chunkCell(rank, chunk, held, step, at) {
  const inner = chunkMarks(rank, chunk, held, step, at);
  const came = at.came.find(([, , target, into]) => target === rank && into === chunk);
  if (!came || came[1] < 0) return inner;
  const place = (who, which) => {
    const angle = at.angle(who);
    return [at.radius(which) * Math.cos(angle), at.radius(which) * Math.sin(angle)];
  };
  const [from, to] = [place(came[0], came[1]), place(rank, chunk)];
  return tag("g", { "data-came": `${(from[0] - to[0]).toFixed(1)} ${(from[1] - to[1]).toFixed(1)}` }, inner);
}

function chunkMarks(rank, chunk, held, step, at) {
  const { n, cell, middle } = at;
  const [mask, wrong] = held;
  const x = middle + at.radius(chunk) * Math.cos(at.angle(rank));
  const y = middle + at.radius(chunk) * Math.sin(at.angle(rank));
  const fill = fillOf(chunk, mask, n);
  const hooks = { "data-step": step, "data-rank": rank, "data-chunk": chunk, "data-count": count(mask) };
  const looks = { fill, class: wrong ? at.blamed.cell(rank, chunk) : "edge", rx: 2, ...hooks };
  let markup = rect(x - cell / 2, y - cell / 2, cell, cell, looks, chunkTitle(rank, chunk, held, n));
  if (isComplete(held, n) && cell > 9) {
    const inner = { fill: "none", stroke: inkOn(fill), rx: 1 };
    markup += rect(x - cell / 2 + 2, y - cell / 2 + 2, cell - 4, cell - 4, inner);
  }
  if (cell > 10) {
    const kind = `middle ${cell > 16 ? "small" : "tiny"}`;
    markup += text(x, y + 4, wrong ? "✗" : wordIn(chunk, mask, cell), kind, ink(fill));
  }
  return markup;
}

/** 1 to the next rank of the ring, -1 to the one before, 0 across. */
function turnOf(source, target, n) {
  if (mod(target - source, n) === 1) return 1;
  return mod(source - target, n) === 1 ? -1 : 0;
}

/** An arrow from where a chunk lies to where it is taken; along the ring, if it stays at its place there. */
function sendArrow(send, step, at) {
  const [source, sent, target, into] = send;
  const wrong = at.blamed.send(step, send);
  const { n, cell, middle } = at;
  const chunk = Math.max(sent, 0);
  const end = into < 0 ? chunk : into;
  const turn = turnOf(source, target, n);
  const radius = at.radius(chunk);
  const gap = (cell / 2 + 3) / radius;
  const point = (angle, of) => {
    const x = middle + at.radius(of) * Math.cos(angle);
    return `${x.toFixed(1)} ${(middle + at.radius(of) * Math.sin(angle)).toFixed(1)}`;
  };
  const way = end === chunk && turn ? `A${radius} ${radius} 0 0 ${turn > 0 ? 1 : 0}` : "L";
  const from = point(at.angle(source) + turn * gap, chunk);
  const d = `M${from}${way} ${point(at.angle(target) - turn * gap * 1.4, end)}`;
  const looks = { class: wrong || "now", "marker-end": "url(#lk-arrow)" };
  const arrow = tag("path", { d, ...looks, "data-send": `${source}>${target}:${sent}` });
  if (n > 8 || !turn) return arrow;
  const half = at.angle(source) + (turn * Math.PI) / n;
  const far = radius + 9 * turn;
  const kind = `middle small ${wrong.includes("bad") ? "bad" : "bold"}`;
  return arrow + text(middle + far * Math.cos(half), middle + far * Math.sin(half) + 4, arrived(sent, into), kind);
}

/** The ring at a step: what every rank holds before it, and what is sent in it. */
export function wheel(state, sends, n, side, step, { came, blamed }) {
  const at = { ...measures(n, state[0].length, side), came, blamed };
  const ranks = state.map((chunks, rank) => {
    const cells = chunks.map((held, chunk) => chunkCell(rank, chunk, held, step, at));
    return rankLabel(rank, at) + cells.join("");
  });
  return ARROW + ranks.join("") + sends.map((send) => sendArrow(send, step, at)).join("");
}
