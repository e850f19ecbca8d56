"use strict";
// How people stand as dots in the two halves of a lane, on it and passed; page.js draws them.

const FIVE = 0.45; // the gap after each five dots of a row, so that they can be counted, in dots

/** How many dots a row has, a multiple of five, and the pixels from dot to dot.

The widest row whose dots are nearly as large as they can be: few long rows compare better than many short ones.
*/
function rowsFor(crowd, wide, tall, largestOf) {
  const ways = [];
  for (let rowOf = 5; rowOf < crowd + 5; rowOf += 5) {
    const across = wide / (rowOf + (rowOf / 5 - 1) * FIVE);
    ways.push([rowOf, Math.min(largestOf, across, tall / Math.ceil(crowd / rowOf))]);
  }
  const largest = Math.max(...ways.map(([, step]) => step));
  return ways.findLast(([, step]) => step >= 0.8 * largest);
}

const lengthOf = (crowd) => crowd + Math.floor((crowd - 1) / 5) * FIVE; // of one row, in dots

/** Dots a row, pixels from dot to dot, and where the right half begins, 0 to 1, in lanes of this size.

`on` and `passed` are the largest crowds, `count` the pixels that a half's number has. Where dots are nearly as large so,
everybody stands in one row, so that rows compare by their length, and the halves are as wide as their crowds ask for.
*/
function layout(on, passed, count, wide, tall, { isOneRow, largest }) {
  const rows = rowsFor(Math.max(on, passed), wide / 2 - count, tall, largest);
  const free = Math.min(largest, (wide - 2 * count) / (lengthOf(on) + lengthOf(passed)));
  const split = Math.max(0.3, Math.min(0.7, (count + lengthOf(on) * free) / wide));
  const room = Math.min((wide * split - count) / lengthOf(on), (wide * (1 - split) - count) / lengthOf(passed));
  const step = Math.min(largest, tall, room);
  return isOneRow && step >= 0.5 * rows[1] ? [Math.max(on, passed), step, split] : [...rows, 0.5];
}

globalThis.dots = { layout };
