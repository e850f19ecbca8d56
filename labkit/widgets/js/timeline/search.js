// Looking for a time among sorted ones.

/** The index of the first entry of the sorted array a[from..to) that is not below x. */
export function lowerBound(a, from, to, x) {
  let low = from;
  let high = to;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (a[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}
