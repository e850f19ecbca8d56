// The ring player: the ranks in a circle, who sends what when, and how long each link is busy.

import { letterOf } from "../figure/colours.js";
import { tag } from "../figure/markup.js";
import { most, range } from "../figure/numbers.js";
import { choice, linkSliders, powers, slider } from "../figure/sliders.js";
import { bytes, seconds, speed } from "../figure/units.js";
import { blame } from "./blame.js";
import { arrived } from "./chunks.js";
import { links } from "./links.js";
import { hallGrid, sendGrid } from "./send_grid.js";
import { count, isComplete, ringSeconds, ringSteps, stateBefore, transferTimes } from "./steps.js";
import { wheel } from "./wheel.js";

const FEW = 5; // ranks whose chunks have room for large letters on a slide

/** A plan with what every rank holds before each step, and the first step in which a complete chunk is sent. */
function withStates({ steps, faults }, n, chunks) {
  const own = steps.map((step, s) => ({ ...step, before: stateBefore(steps, n, s, chunks) }));
  const sendsComplete = ({ sends, before }) =>
    sends.some(([source, chunk]) => count(before[source][chunk]?.[0] ?? 0) === n);
  return { steps: own, faults, split: own.findIndex((step, s) => s > 0 && sendsComplete(step)) };
}

/** Whether every rank owns its chunk of the first half and no other; told of plans that are wrong too. */
function ownsAlone(steps, n, half, chunks) {
  return stateBefore(steps, n, half, chunks).every((held, rank) =>
    held.every(([mask, wrong], chunk) => (count(mask) === n) === (chunk % n === (rank + 1) % n) && !wrong),
  );
}

/** How many chunks the busiest rank sends. */
function mostSends(steps, n) {
  const sends = steps.flatMap((step) => step.sends);
  return most(range(n).map((rank) => sends.filter(([source]) => source === rank).length));
}

/** What the player shows of one plan with these values: the plan, its state at a step, its times. */
class Position {
  constructor(data, given, step, width) {
    this.values = { n: data.n, size: data.size, ...given };
    this.n = this.values.n;
    this.values.chunks ||= this.n;
    this.chunks = this.values.chunks;
    Object.assign(this, planOf(data, this.values)); // steps, faults, split
    this.step = step;
    this.ended = step === this.steps.length;
    this.now = this.ended ? [] : this.steps[step].sends;
    this.state = stateBefore(this.steps, this.n, step, this.chunks);
    this.whole = this.state.flat().filter((held) => isComplete(held, this.n)).length;
    this.model = transferTimes(this.steps, this.n, this.values);
    this.real = data.times ?? [];
    this.width = width;
  }

  /** Faults that have come up so far. */
  get seen() {
    return this.faults.filter(([s]) => s < this.step || this.ended);
  }
}

function planOf(data, { n, chunks }) {
  const all = chunks || n;
  return withStates(data.played?.[n] ?? { steps: ringSteps(n, all), faults: [] }, n, all);
}

/** The wheel, and beside it, or below where that is too narrow, the grid and the links; on a slide the grid alone. */
function picture({ n, state, now, step, steps, split, model, real, values, width }) {
  const blamed = blame(steps);
  const isAsked = values.links === "shown";
  if (values.room && n <= FEW && !isAsked) return hallGrid(steps, n, step, width, { split, blamed });
  const beside = width >= 560;
  const side = Math.min(Math.max(0.4 * width, 270), 400, width);
  const room = beside ? width - side - 20 : width;
  const grid = sendGrid(steps, n, step, room, { split, blamed });
  const lanes = isAsked
    ? links(real.length ? real : model, real.length ? model : [], n, step, room, values.latency)
    : { svg: "", height: 0 };
  const [x, y] = beside ? [side + 20, 0] : [0, side + 10];
  const below = tag("g", { transform: `translate(0 ${grid.height + 10})` }, lanes.svg);
  const right = tag("g", { transform: `translate(${x} ${y})` }, grid.svg + below);
  const round = wheel(state, now, n, side, step, { came: steps[step - 1]?.sends ?? [], blamed });
  return {
    svg: round + right,
    height: beside ? Math.max(side, grid.height + lanes.height + 12) : side + grid.height + lanes.height + 20,
  };
}

function invariant({ steps, n, chunks, step }) {
  const label = "each rank r owns chunk (r+1) mod N alone";
  const half = Math.ceil(chunks / n) * (n - 1);
  if (step < half) return [label, `checked after step ${half - 1}`, false];
  const holds = ownsAlone(steps, n, half, chunks);
  return [label, holds ? "✓" : "✗", !holds];
}

function numbersOf(position) {
  const { n, chunks, steps, values, model, real, whole, ended } = position;
  const total = most([0, ...model.map((transfer) => transfer[4])]);
  const sent = (mostSends(steps, n) / chunks) * values.size;
  const formula = chunks === n ? "2(N−1)(α + B/Nβ)" : "2(N−1)⌈C/N⌉(α + B/Cβ)";
  const numbers = [
    ["steps", steps.length],
    ["sent by a rank", bytes(sent)],
    ["time, model", seconds(total)],
    [formula, seconds(ringSeconds(n, values))],
    ["algbw", speed(values.size / total)],
    ["busbw", speed((((2 * (n - 1)) / n) * values.size) / total)],
  ];
  if (real.length) numbers.push(["time, this run", seconds(most(real.map((transfer) => transfer[4])))]);
  numbers.push(["chunks complete", `${whole} of ${n * chunks}`, ended && whole < n * chunks]);
  numbers.push(invariant(position));
  return numbers;
}

/** The step it opens at: where something has just gone wrong, else where every rank owns its first complete chunk. */
function mostTelling({ steps, faults, split }) {
  if (faults.length) return Math.min(faults[0][0] + 1, steps.length);
  return split > 0 ? split : steps.length;
}

/** What it costs; of a plan that is wrong, how far it comes. */
function claim({ faults, steps, n, chunks, values, real }) {
  const after = stateBefore(steps, n, steps.length, chunks).flat();
  const whole = after.filter((held) => isComplete(held, n)).length;
  if (faults.length || whole < n * chunks) {
    return `${whole ? `Only ${whole}` : "None"} of ${n * chunks} chunks ${whole > 1 ? "become" : "becomes"} complete`;
  }
  const sent = (mostSends(steps, n) / chunks) * values.size;
  const how = real.length ? "As watched: " : "";
  return `${how}${n} ranks sum ${bytes(values.size)}; each sends ${bytes(sent)}`;
}

/** The fault of this step, or the first; else what is sent; in the end what came of it. */
function sentence({ seen, step, ended, whole, n, chunks, now }) {
  if (seen.length) return (seen.find(([s]) => s === step - 1) ?? seen[0])[2];
  if (ended) return `${whole} of ${n * chunks} chunks are complete.`;
  const moves = now.map(([source, chunk, target, into]) => `${source}→${target} ${arrived(chunk, into)}`);
  return `Step ${step}: ${moves.join(", ")}.`;
}

function tableOf({ state, faults, chunks, n }) {
  const told = ([mask, wrong]) => `${count(mask)} of ${n}${wrong ? ", wrong" : ""}`;
  return [
    ["rank", ...range(chunks).map((chunk) => `chunk ${letterOf(chunk)}`)],
    ...state.map((held, rank) => [rank, ...held.map(told)]),
    ...faults.map(([s, , words]) => [`step ${s}`, words]),
  ];
}

function slidersOf(data, sizes) {
  const sliders = [];
  if (sizes.length > 1) sliders.push(choice("n", "ranks", data.n, sizes));
  if (!data.played) sliders.push(slider("chunks", "chunks", data.chunks, 0, 16, (chunks) => chunks || "N"));
  if (!data.times) sliders.push(powers("size", "tensor", data.size, 1e3, 1e10, bytes));
  sliders.push(...linkSliders(data));
  const slow = (rank) => (rank < 0 ? "none" : `${rank} →`);
  sliders.push(choice("links", "links", "hidden", ["hidden", "shown"]));
  sliders.push(slider("slow", "slow link (¼ speed)", -1, -1, most(sizes) - 1, slow));
  return sliders;
}

/** @returns {import("../figure/explorer.js").View} */
export function ringPlayer(data) {
  const sizes = data.played ? Object.keys(data.played).map(Number) : range(15).map((k) => k + 2);
  return {
    title: data.title,
    source: data.source,
    main: ["n", "slow", "size"],
    begin: mostTelling(planOf(data, { n: data.n, chunks: data.chunks })),
    sliders: slidersOf(data, sizes),
    steps: (values) => planOf(data, { n: data.n, ...values }).steps.length,
    stepName: (values, step) => (step === 0 ? "start" : `after step ${step - 1}`),
    draw(values, step, width) {
      const position = new Position(data, values, step, width);
      const { whole, faults, seen } = position;
      return {
        ...picture(position),
        numbers: numbersOf(position),
        title: claim(position),
        say: sentence(position),
        table: tableOf(position),
        data: { whole, faults: faults.length, seen: seen.length },
      };
    },
  };
}
