// Edges of bars on pixels: a column in which one bar ends, or gives way to the next, is all one or all the other.

const WHOLE = 0.999;
const EMPTY = -1;
const SEVERAL = -2;

/** Which category fills a column alone, EMPTY where none is in it, else SEVERAL. */
function ownerOf(shares, x, categories) {
  let total = 0;
  for (let c = 0; c < categories; c++) {
    const share = shares[x * categories + c];
    if (share >= WHOLE) return c;
    total += share;
  }
  return total <= 1 - WHOLE ? EMPTY : SEVERAL;
}

/** How much of a column an owner has; of EMPTY what nobody has. */
function partOf(shares, x, categories, owner) {
  if (owner !== EMPTY) return shares[x * categories + owner];
  let idle = 1;
  for (let c = 0; c < categories; c++) idle -= shares[x * categories + c];
  return idle;
}

function giveTo(shares, x, categories, owner) {
  for (let c = 0; c < categories; c++) shares[x * categories + c] = c === owner ? 1 : 0;
}

/**
 * Give each column that is the edge of a bar to the larger of the two it parts. Columns with more in them than their
 * neighbours are left as they are: what is narrower than a pixel keeps its exact share. labkit/widgets/pixel_shares.py
 * does the same.
 */
export function snapEdges(shares, columns, categories) {
  let before = columns ? ownerOf(shares, 0, categories) : SEVERAL;
  let own = columns > 1 ? ownerOf(shares, 1, categories) : SEVERAL;
  for (let x = 1; x + 1 < columns; x++) {
    const after = ownerOf(shares, x + 1, categories);
    const isEdge = own === SEVERAL && before !== SEVERAL && after !== SEVERAL && before !== after;
    const [left, right] = isEdge ? [before, after].map((owner) => partOf(shares, x, categories, owner)) : [0, 0];
    if (left + right >= WHOLE) giveTo(shares, x, categories, left >= right ? before : after);
    before = own;
    own = after;
  }
  return shares;
}
