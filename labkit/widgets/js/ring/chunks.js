// How a chunk is named and tinted, everywhere in the ring player.

import { between } from "../figure/colours.js";
import { count } from "./steps.js";

const named = (chunk) => (chunk < 0 ? "?" : `c${chunk}`);

export { named as chunkName };

/** The chunk that came, after the one it was taken for where these differ. */
export const arrived = (chunk, into) =>
  into >= 0 && into !== chunk ? `${named(into)}? ${named(chunk)}` : named(chunk);

/** Light for one contribution, dark for all n. */
export const fillOf = (mask, n) => between("#dbe9f6", "#08306b", n > 1 ? (count(mask) - 1) / (n - 1) : 1);
