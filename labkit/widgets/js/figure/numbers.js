// Lists of numbers.

/** The numbers from 0 to n - 1. */
export const range = (n) => Array.from({ length: Math.max(n, 0) }, (_, k) => k);

export const sum = (list) => list.reduce((a, b) => a + b, 0);
export const most = (list) => Math.max(...list);
export const least = (list) => Math.min(...list);
