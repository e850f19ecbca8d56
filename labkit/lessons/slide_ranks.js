// Which ranks of a run a slide shows, and in how many tracks each.

/** How long two rows have bars at once. */
function together(some, others) {
  let [at, sum] = [0, 0];
  for (const [from, to] of some) {
    while (at < others.length && others[at][1] <= from) at++;
    for (let k = at; k < others.length && others[k][0] < to; k++) {
      sum += Math.min(to, others[k][1]) - Math.max(from, others[k][0]);
    }
  }
  return sum;
}

const timeOf = (some) => some.reduce((sum, [from, to]) => sum + to - from, 0);

/** Whether what ranks compute outside of a backward is, but for one part in twenty, within what is called a forward. */
function isForward(run) {
  let [all, within] = [0, 0];
  for (const rank of run.ranks.keys()) {
    const rows = run.rows.filter((row) => row.rank === rank);
    const of = (lane, isOwn) =>
      rows.filter((row) => row.lane === lane).flatMap((row) => slideBars.barsOf(run, row).filter(isOwn));
    const computed = of(0, ([, , category]) => category === 0);
    const named = of(3, ([, , , event]) => /^(forward|F\d+)$/.test(run.labels[run.label[event]][0]));
    all += timeOf(computed);
    within += together(computed, named);
  }
  return all > 0 && within > 0.95 * all;
}

/**
 * The tracks of a run's ranks: lanes that never have bars at once share one.
 *
 * @returns {number[][]} Lanes of each track.
 */
function tracksOf(run, ranks) {
  const rows = run.rows.filter(({ rank, lane }) => ranks.includes(rank) && lane < 3);
  const of = (rank, lane) =>
    rows.filter((row) => row.rank === rank && row.lane === lane).flatMap((row) => slideBars.barsOf(run, row));
  const isSeen = (lane) => ranks.some((rank) => timeOf(of(rank, lane)) > 0.002 * run.span);
  const colours = [0, 1, 2].filter(isSeen);
  // Where nothing else does, brackets say what ranks do.
  const isNamed = !colours.includes(0) && !colours.includes(2) && run.rows.some(({ lane }) => lane === 3);
  const tracks = [];
  for (const lane of colours) {
    const isFree = (track) =>
      ranks.every((rank) => track.every((other) => together(of(rank, other), of(rank, lane)) < 0.01 * run.span));
    const free = tracks.find(isFree);
    if (free) free.push(lane);
    else tracks.push([lane]);
  }
  return isNamed ? [[3], ...tracks] : tracks;
}

/** Where a rank's time goes, in each category, as parts of the whole. */
function spentBy(run, rank) {
  const spent = new Float64Array(run.categories.length);
  for (const row of run.rows.filter((each) => each.rank === rank && each.lane < 3)) {
    for (const [from, to, category] of slideBars.barsOf(run, row)) spent[category] += (to - from) / run.span;
  }
  return spent;
}

/** Parts of the whole by which the times of two ranks differ, where a picture of few shows both for that. */
const UNLIKE = 0.02;

/** Whether the time of two ranks goes where that of the other goes, but for that. */
const isAlike = (run, one, other) => {
  const theirs = spentBy(run, other);
  return spentBy(run, one).every((part, category) => Math.abs(part - theirs[category]) < UNLIKE);
};

/** Of ranks at most so many, and one more: the first, whom the headline names, and those most unlike these. */
function fewOf(run, left, most) {
  if (left.length <= most + 1) return left;
  const told = new Set((run.title?.match(/\b[Rr]ank \d+/g) ?? []).map((words) => Number(words.slice(5))));
  const spent = new Map(left.map((rank) => [rank, spentBy(run, rank)]));
  const apart = (one, other) => Math.max(...spent.get(one).map((part, k) => Math.abs(part - spent.get(other)[k])));
  const seen = [...new Set([left[0], ...left.filter((rank) => told.has(rank))])].slice(0, most);
  while (seen.length < most) {
    const rest = left.filter((rank) => !seen.includes(rank));
    const unlike = rest.map((rank) => Math.min(...seen.map((other) => apart(rank, other))));
    const far = Math.max(...unlike);
    if (far > UNLIKE) seen.push(rest[unlike.indexOf(far)]);
    else seen.push(seen.includes(left.at(-1)) ? rest[0] : left.at(-1));
  }
  return left.filter((rank) => seen.includes(rank));
}

/** The ranks of a run that the slide shows, and after each what it does not: dots, or in words how many. */
function ranksOf({ layout, runs }, number, most) {
  const run = runs[number];
  const rows = [...new Set(layout.rows.filter((row) => row.run === number).map(({ row }) => row.rank))];
  rows.sort((a, b) => a - b);
  const seen = fewOf(run, rows, most);
  const few = seen.length > most ? [...seen.slice(0, most - 1), seen.at(-1)] : seen;
  // One of those that are alike is enough beside another run, and alone two, with what they send each other.
  const enough = runs.length > 1 ? 1 : 2;
  const isOneOfMany = (rank, k) => few.slice(0, k).filter((each) => isAlike(run, rank, each)).length >= enough;
  const shown = few.length < run.ranks.size ? few.filter((rank, k) => !isOneOfMany(rank, k)) : few;
  const all = [...run.ranks.keys()].sort((a, b) => a - b);
  const told = new Map(shown.map((rank) => [rank, [0, 0]])); // how many follow it, how many are like it
  for (const rank of all.filter((each) => !shown.includes(each))) {
    const alike = shown.findLast((each) => isAlike(run, rank, each));
    told.get(alike ?? shown.findLast((each) => each < rank) ?? shown[0])[alike === undefined ? 0 : 1]++;
  }
  return shown.map((rank) => {
    const [others, alike] = told.get(rank);
    if (!others) return { rank, more: alike ? `${alike} more alike` : "" };
    return { rank, more: rank < shown.at(-1) ? "⋮" : `${others + alike} more` };
  });
}

/** The ranks of a run after its first few, in words: which they are, and whether they are like the last of these. */
function restOf(run, few) {
  const all = [...run.ranks.keys()].sort((a, b) => a - b);
  const rest = all.slice(few);
  if (!rest.length) return "";
  const which = rest.length > 1 ? `ranks ${rest[0]} to ${rest.at(-1)}` : `rank ${rest[0]}`;
  return rest.every((rank) => isAlike(run, all[few - 1], rank)) ? `${which}: alike` : `${which}: not shown`;
}

globalThis.slideRanks = { isForward, ranksOf, restOf, tracksOf };
