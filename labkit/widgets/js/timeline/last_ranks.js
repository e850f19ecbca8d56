// The ranks that come last, as a run's headline names them.

const LAST = /^Ranks? ([\d, and]+) comes? last/;

/** The ranks that a run's headline says come last. */
export const lateRanks = ({ title = "" }) => (LAST.exec(title)?.[1].match(/\d+/g) ?? []).map(Number);
