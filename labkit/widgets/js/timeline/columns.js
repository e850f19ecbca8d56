// The record of one run as typed columns, from the bytes that Python packed. Times are ns since its first span began.

import { bytesOf } from "./bytes.js";
import { complete } from "./complete.js";

const TYPES = { f8: Float64Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array };
const WHOLE = /^label|^stream|^flow|^cut_event|^call_|_from|_to/; // columns of numbers of things

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
export const decode = (packed) => complete(unpack(packed), packed.rows);
