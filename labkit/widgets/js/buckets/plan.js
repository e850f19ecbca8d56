// Which gradients go into which bucket, when each is ready and sent, and what a hook loses of them.

import { collective } from "../figure/link.js";
import { most, range, sum } from "../figure/numbers.js";

/** How torch's DDP is told of the graph. */
export const GRAPHS = ["default", "find_unused_parameters", "static_graph"];

/** Bytes per second that a compressing hook reads and writes: the memory of an A100. */
export const MEMORY = 1.6e12;

/** A size in the unit of DDP's caps. */
export const mib = (size) => `${Number((size / 2 ** 20).toPrecision(3))} MiB`;

/** A share in words. */
export const part = (share) => `${Number((100 * share).toPrecision(2))} %`;

/**
 * Buckets in the order they are sent: from the last parameter to the first or in a given order. A parameter that would
 * exceed the cap begins a bucket; torch's DDP closes one only when it is full, and so may exceed it.
 */
export function bucketPlan(sizes, cap, first, order = range(sizes.length).reverse(), isUntilFull = false) {
  const buckets = [];
  let filled = 0;
  for (const parameter of order) {
    const limit = (buckets.length === 1 && first) || cap;
    if (!buckets.length || (isUntilFull ? filled >= limit : filled + sizes[parameter] > limit)) {
      buckets.push([]);
      filled = 0;
    }
    filled += sizes[parameter];
    buckets.at(-1).push(parameter);
  }
  return buckets;
}

/** The buckets of one step of torch's DDP; an empty one says what was used. Why: reference/bucket_plans.py in plans. */
export function ddpPlan(sizes, cap, first, used, graph, step, isUntilFull) {
  const isStatic = graph === "static_graph";
  if (graph === "find_unused_parameters") return [...bucketPlan(sizes, cap, first, undefined, isUntilFull), []];
  if (step > 1 + isStatic) return bucketPlan(sizes, cap, first, [...used].reverse(), isUntilFull);
  const all = range(sizes.length);
  return isStatic && step === 1 ? [[], all] : [all];
}

/** When backward has each gradient, from its begin on: it takes as long for a parameter as that is large. */
function readyTimes(sizes, used, backward) {
  const total = sum(sizes);
  const done = [];
  let before = 0;
  for (const parameter of [...used].reverse()) {
    before += sizes[parameter];
    done[parameter] = (before / total) * backward;
  }
  return done;
}

/**
 * For each bucket { bytes, ready, all, start, end } from backward's begin on: ready here and on the slowest rank, sent
 * one at a time.
 */
export function bucketTimes(sizes, plan, { backward, skew = 0, used = range(sizes.length), hook = {}, ...link }) {
  const done = readyTimes(sizes, used, backward);
  const of = (bucket, list) => sum(bucket.map((parameter) => list[parameter]));
  let free = 0;
  return plan.map((bucket) => {
    const bytes = bucket.length ? of(bucket, hook.bytes ?? sizes) : 4 * sizes.length;
    const ready = bucket.length ? most(bucket.map((parameter) => done[parameter])) : backward;
    const start = most([ready + skew, free]);
    const compressing = ((hook.passes ?? 0) * of(bucket, sizes)) / MEMORY;
    free = start + compressing + collective(bytes, link, hook.gathered && bucket.length);
    return { bytes, ready, all: ready + skew, start, end: free };
  });
}

/** What a hook loses of gradients: norm of the error over norm of the mean, of parameters together. */
export function lost(errors, norms, bucket) {
  const error = Math.hypot(...bucket.map((parameter) => errors[parameter] * norms[parameter]));
  return error / (Math.hypot(...bucket.map((parameter) => norms[parameter])) || 1);
}
