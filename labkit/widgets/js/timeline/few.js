// Which of many ranks a slide shows, and which it leaves out.

import { COMMUNICATION, COMPUTE, HOST } from "./kinds.js";
import { rowBusy } from "./shares.js";

/** Where a rank's time goes, as parts of the whole: its lanes, and standing still. */
function spentBy(run, rank) {
  const { lanes, blocked } = run.ranks.get(rank);
  const times = [COMPUTE, COMMUNICATION, HOST].map((lane) =>
    lanes[lane] ? rowBusy(run, lanes[lane], 0, run.span) : 0,
  );
  return [...times, blocked.sums.at(-1)].map((time) => time / run.span);
}

/** Parts of the whole by which the times of two ranks differ, where a picture of few shows both for that. */
const UNLIKE = 0.02;

/**
 * The ranks that a slide leaves out, where `few` are to be seen: those whose time goes where that of others goes, and
 * that the headline does not name.
 */
export function leftOut(run, few, hidden) {
  const left = [...run.ranks.keys()].filter((rank) => !hidden.has(rank));
  if (!few || left.length <= few + 1) return []; // one row more is no more than the words that stand for it
  const told = new Set((run.title?.match(/\b[Rr]ank \d+/g) ?? []).map((words) => Number(words.slice(5))));
  const spent = new Map(left.map((rank) => [rank, spentBy(run, rank)]));
  const apart = (one, other) => Math.max(...spent.get(one).map((part, k) => Math.abs(part - spent.get(other)[k])));
  const seen = [...new Set([left[0], ...left.filter((rank) => told.has(rank))])].slice(0, few);
  while (seen.length < few) {
    const rest = left.filter((rank) => !seen.includes(rank));
    const unlike = rest.map((rank) => Math.min(...seen.map((other) => apart(rank, other))));
    const most = Math.max(...unlike);
    if (most > UNLIKE) seen.push(rest[unlike.indexOf(most)]);
    else seen.push(seen.includes(left.at(-1)) ? rest[0] : left.at(-1));
  }
  return left.filter((rank) => !seen.includes(rank));
}
