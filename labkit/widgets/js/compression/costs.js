// What a step costs with a method of compression, and at which speeds of the link it pays.

import { collective } from "../figure/link.js";

/**
 * @typedef {object} Method
 * @property {string} name
 * @property {number} bytes What a rank sends.
 * @property {number} compress Seconds of compressing.
 * @property {boolean} addable Whether sums of it are of the same form: then it is all-reduced, else gathered.
 */

/** Seconds of one step: compute, compress, and an all_reduce of what can be added or an all_gather of packets. */
export function stepSeconds(method, { compute, scale = 1, ...link }) {
  return compute + method.compress * scale + collective(method.bytes * scale, link, !method.addable);
}

/** [from, to] bandwidths between which a method's step is faster than the plain one's, or null. */
export function pays(method, plain, values) {
  const withoutBytes = (each) => stepSeconds(each, { ...values, bandwidth: Infinity });
  const bytesAlone = { ...values, compute: 0, latency: 0, bandwidth: 1 };
  const perByte = (each) => stepSeconds({ ...each, compress: 0 }, bytesAlone);
  const saved = perByte(plain) - perByte(method);
  const costs = withoutBytes(method) - withoutBytes(plain);
  if (costs <= 0 && saved >= 0) return [0, Infinity];
  if (costs * saved <= 0) return null;
  return costs > 0 ? [0, saved / costs] : [saved / costs, Infinity];
}
