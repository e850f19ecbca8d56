// The record of one run as typed columns, from the bytes that Python packed. Times are ns since its first span began.

import { bytesOf } from "./bytes.js";
import { complete } from "./complete.js";

const TYPES = { f8: Float64Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array };
const WHOLE = /^label|^flow|^cut_event|^call_|_from|_to/; // columns of numbers of things

/** A column in the type that is computed with. */
function columnOf(name, sent) {
  const Wanted = WHOLE.test(name) ? Uint32Array : Float64Array;
  return sent instanceof Wanted ? sent : new Wanted(sent);
}

/** A packed part with its columns as typed arrays (labkit/widgets/timeline_columns.py). */
export function unpack(packed) {
  const sent = bytesOf(packed.columns);
  const bytes = sent.byteOffset % 8 ? sent.slice() : sent; // typed arrays need aligned bytes
  const part = { ...packed };
  for (const [name, [type, offset, length]] of Object.entries(packed.layout)) {
    part[name] = columnOf(name, new TYPES[type](bytes.buffer, bytes.byteOffset + offset, length));
  }
  return part;
}

/** A run from what Python packed. */
export function decode(packed) {
  const run = unpack(packed);
  const n = run.start.length;
  run.end = new Float64Array(n);
  run.category = new Uint8Array(n);
  const categoryOf = Uint8Array.from(run.labels, ([, , category]) => category);
  let at = 0;
  for (const [, , count] of packed.rows) {
    spread(run, categoryOf, at, at + count);
    at += count;
  }
  return complete(run, packed.rows);
}

// Loops over events stand in functions that are called for each row: an engine compiles a function at its next call,
// and a page that has just been opened would run one loop over all events to its end uncompiled.

/** Fill in the ends and categories of a row's events. */
function spread({ start, duration, end, label, category }, categoryOf, from, to) {
  for (let i = from; i < to; i++) {
    end[i] = start[i] + duration[i];
    category[i] = categoryOf[label[i]];
  }
}
