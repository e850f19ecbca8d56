// Who holds what at each moment of a step, for each stage of ZeRO; the model has a few equal blocks.

import { hue } from "../figure/colours.js";
import { range, sum } from "../figure/numbers.js";

export const BLOCKS = 4;
/** Kinds of numbers with their bytes for each parameter. */
export const KINDS = [
  ["parameters", 2, hue("forward")],
  ["gradients", 2, hue("backward")],
  ["optimizer", 12, hue("optimizer")],
];
export const STAGES = ["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"];
export const NONE = 0;
export const SHARD = 1;
export const WHOLE = 2;

/** The moments of a step: what is done, and with which block. */
export const MOMENTS = [
  ["between steps", -1],
  ...range(BLOCKS).map((block) => ["forward", block]),
  ...range(BLOCKS).map((place) => ["backward", BLOCKS - 1 - place]),
  ["update", -1],
];

function parameters(stage, [what, now], block) {
  if (stage < 3) return WHOLE;
  const next = what === "forward" ? now + 1 : now - 1;
  return now >= 0 && (block === now || block === next) ? WHOLE : SHARD;
}

function gradients(stage, [what, now], block) {
  if (what === "between steps" || what === "forward" || block < now) return NONE;
  return stage < 2 || block === now ? WHOLE : SHARD;
}

/** What a rank holds of a block: one of NONE, SHARD and WHOLE for each kind. */
export const holding = (stage, moment, block) => [
  parameters(stage, MOMENTS[moment], block),
  gradients(stage, MOMENTS[moment], block),
  stage > 0 ? SHARD : WHOLE,
];

/** Bytes that a rank holds at a moment. */
export function heldBytes(stage, moment, ranks, params) {
  const share = [0, 1 / ranks, 1];
  const perBlock = (block) => sum(holding(stage, moment, block).map((held, kind) => KINDS[kind][1] * share[held]));
  return (params / BLOCKS) * sum(range(BLOCKS).map(perBlock));
}

/** Bytes that a rank has sent when a moment is over. */
export function sentBytes(stage, moment, ranks, params) {
  const passes = (what) => MOMENTS.slice(0, moment + 1).filter(([each]) => each === what).length / BLOCKS;
  let gathers = stage > 0 ? BLOCKS * passes("update") : 0;
  if (stage === 3) gathers = passes("forward") + passes("backward");
  const reduces = (stage === 0 ? 2 : 1) * passes("backward");
  return 2 * params * ((ranks - 1) / ranks) * (gathers + reduces);
}
