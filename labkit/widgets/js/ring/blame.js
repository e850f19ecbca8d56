// What in a plan went wrong first, and what only follows from it.

const CULPRIT = "bad culprit";
const CONSEQUENCE = "after";

const isWrong = (mark) => mark[3];
const placeOf = (rank, chunk) => `${rank},${chunk}`;

/**
 * Tell the first wrong step's marks from all that are wrong later: the class of each, "" where nothing is wrong.
 *
 * @param {Array<import("./steps.js").Step & { before: Array }>} steps Each with what every rank holds before it.
 */
export function blame(steps) {
  const first = steps.findIndex(({ sends, writes }) => sends.some((send) => send[4]) || writes.some(isWrong));
  const wrote = new Set((steps[first]?.writes ?? []).filter(isWrong).map(([rank, chunk]) => placeOf(rank, chunk)));
  return {
    first,
    cell: (rank, chunk) => (wrote.has(placeOf(rank, chunk)) ? CULPRIT : CONSEQUENCE),
    send(s, [source, chunk, target, into, wrong]) {
      if (s === first) return wrong || wrote.has(placeOf(target, into)) ? CULPRIT : "";
      return wrong || steps[s]?.before[source]?.[chunk]?.[1] ? CONSEQUENCE : "";
    },
  };
}
