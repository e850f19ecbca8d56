// How a chunk is named and tinted, everywhere in the ring player.

import { between, letterOf, tintOf } from "../figure/colours.js";
import { count } from "./steps.js";

const EMPTY = "#dedede";
const named = (chunk) => (chunk < 0 ? "?" : letterOf(chunk));

export { named as chunkName };

/** The chunk that came, after the one it was taken for where these differ. */
export const arrived = (chunk, into) =>
  into >= 0 && into !== chunk ? `${named(into)}? ${named(chunk)}` : named(chunk);

/** The chunk's tint, the fuller the more of n contributions it holds. */
export const fillOf = (chunk, mask, n) => between(EMPTY, tintOf(chunk), n > 1 ? (count(mask) - 0.5) / (n - 0.5) : 1);
