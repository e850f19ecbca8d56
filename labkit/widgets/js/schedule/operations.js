// Operations of a pipeline: F, B, I and W of a microbatch and a chunk, and the orders in which a stage runs them.

import { most, range } from "../figure/numbers.js";

/**
 * @typedef {[kind: "F" | "B" | "I" | "W", microbatch: number, chunk: number]} Operation
 * @typedef {[operation: Operation, start: number, end: number]} Placed
 */

/**
 * "F0B0.1" as operations.
 *
 * @returns {Operation[]}
 */
export function parse(words) {
  const found = words.matchAll(/([FBIW])(\d+)(?:\.(\d+))?/g);
  return [...found].map(([, kind, microbatch, chunk]) => [kind, Number(microbatch), Number(chunk ?? 0)]);
}

/** "B0.1", and "B0" in the first chunk. */
export const nameOf = ([kind, microbatch, chunk]) => kind + microbatch + (chunk ? `.${chunk}` : "");

/** When the last of all placed operations ends. */
export const ended = (stages) =>
  stages.reduce((last, row) => row.reduce((later, [, , end]) => (end > later ? end : later), last), 0);

/** A time of a schedule in words: "33 turns" of a planned one, "8.27 s" of a measured one. */
export const turnsOf = ({ unit, placed }, time) => unit(time) + (placed ? "" : " turns");

/** How many chunks a stage has. */
export const chunksOf = (operations) => 1 + most([0, ...operations.map(([, , chunk]) => chunk)]);

/** Chunks alternate, p turns each; after a warm-up every forward is followed by a backward of the other. */
function interleaved(s, p, m) {
  const wait = 3 * p - 2 - 2 * s;
  const half = (turn) => Math.floor(turn / p) % 2;
  return range(wait + 2 * (m + p)).map((turn) => {
    const forward = `F${half(turn)}`;
    return [1, turn < wait ? forward : `${forward}B${1 - half(turn - wait)}`];
  });
}

/** What a form of schedule is called in prose. */
const PROSE = {
  gpipe: "GPipe",
  one_f_one_b: "1F1B",
  interleaved: "interleaved 1F1B",
  zb_h1: "ZB-H1",
  zb_v: "ZB-V",
};
export const proseOf = (form) => PROSE[form] ?? form;

// What stage s of p does how many times with m microbatches: words of a kind and a chunk.
const PLANS = {
  gpipe: (s, p, m) => [
    [m, "F0"],
    [m, "B0"],
  ],
  one_f_one_b: (s, p, m) => [
    [p - 1 - s, "F0"],
    [m, "F0B0"],
  ],
  interleaved,
  zb_h1: (s, p, m) => [
    [p - 1 - s, "F0"],
    [s, "F0I0"],
    [m, "F0I0W0"],
  ],
  zb_v: (s, p, m) => [
    [2 * (p - s) - 1, "F0"],
    [s, "F1F0"],
    [p - s, "F1I1W1"],
    [most([m - p, p - 1]), "F0I0W0F1I1W1"],
    [s, "I0I1"],
    [p - s, "I0W0"],
    [s, "W1"],
    [s, "W0"],
  ],
};

/** Names of the forms. */
export const FORMS = Object.keys(PLANS);

/**
 * The order of a stage in one of these forms: each word stands for its kind's and chunk's next microbatch, if any.
 *
 * @returns {Operation[]}
 */
export function inForm(form, s, p, m) {
  const done = {};
  const next = ([kind, chunk]) => {
    done[kind + chunk] = (done[kind + chunk] ?? -1) + 1;
    return [kind, done[kind + chunk], chunk];
  };
  const words = PLANS[form](s, p, m).flatMap(([times, each]) => parse(each.repeat(times)));
  return words.map(next).filter(([, microbatch]) => microbatch < m);
}

/**
 * What must have ended before an operation of these lists.
 *
 * @param {Operation[][]} stages
 * @param {boolean} vee Chunk 1 goes back from the last stage to the first.
 */
export function needsOf(stages, vee) {
  const p = stages.length;
  const v = chunksOf(stages.flat());
  const has = stages.map((operations) => new Set(operations.map(nameOf)));
  const turned = (s, chunk) => (vee && chunk ? p - 1 - s : s);
  /** The operation of this kind on a part of the model, as [stage, operation]; a split backward's is its I. */
  const on = (part, kind, microbatch) => {
    const chunk = Math.floor(part / p);
    const s = turned(part % p, chunk);
    const split = kind === "B" && has[s].has(nameOf(["I", microbatch, chunk]));
    return [s, [split ? "I" : kind, microbatch, chunk]];
  };
  /** [[stage, operation]] that an operation of stage s needs. */
  const needs = (s, [kind, microbatch, chunk]) => {
    const part = chunk * p + turned(s, chunk);
    if (kind === "W") return [[s, ["I", microbatch, chunk]]];
    if (kind === "F") return part ? [on(part - 1, "F", microbatch)] : [];
    const own = on(part, "F", microbatch);
    return part < v * p - 1 ? [own, on(part + 1, "B", microbatch)] : [own];
  };
  return { needs, has, v };
}
