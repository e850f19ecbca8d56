// The ranks that come last, and the one that works alone, as a run's headline names them.

const LAST = /^Ranks? ([\d, and]+) comes? last/;

/** The ranks that a run's headline says come last. */
export const lateRanks = ({ title = "" }) => (LAST.exec(title)?.[1].match(/\d+/g) ?? []).map(Number);

/** The rank that a run's headline says works while the others wait; undefined where it says that of none. */
export function workingRank({ title = "" }) {
  const [, rank] = /^Rank (\d+) works;/.exec(title) ?? [];
  return rank && Number(rank);
}
