// Where only the first of alike ranks have rows, who is beside them.

import { COMMUNICATION } from "./kinds.js";

/** With whom a rank exchanges its first message of these kinds. */
function peerOf(run, rank, kinds) {
  const { first = 0, last = 0 } = run.ranks.get(rank)?.lanes[COMMUNICATION] ?? {};
  for (let i = first; i < last; i++) {
    const [, kind, , peer] = run.labels[run.label[i]];
    if (kinds.test(kind)) return peer;
  }
  return -1;
}

/** { first, last, before, after }: the first and last with rows, and who of the folded sends to it, who receives. */
export function neighboursOf(run) {
  const { alike = [], each = 1 } = run;
  const group = each > 1 && alike.find((ranks) => ranks.length > each);
  if (!group) return undefined;
  const [first, last] = [group[0], group[each - 1]];
  const folded = (rank) => (group.indexOf(rank) < each ? undefined : rank);
  return { first, last, before: folded(peerOf(run, first, /recv/)), after: folded(peerOf(run, last, /send/)) };
}

/** Whether all ranks are one ring, each of which sends its first message to the next. */
export function isRing(run, rank) {
  let at = rank;
  for (let k = 1; k <= run.ranks.size; k++) {
    at = peerOf(run, at, /send/);
    if (at === rank) return k === run.ranks.size;
  }
  return false;
}
