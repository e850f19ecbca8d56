// The numbers of an interval of time: all from the columns the picture is painted from.

import { latencies } from "./exchanges.js";
import { hiddenWaits } from "./hidden.js";
import { COMMUNICATION, isKnownOf } from "./kinds.js";
import { lateRanks, workingRank } from "./last_ranks.js";
import { lowerBound } from "./search.js";
import { before, rowBusy } from "./shares.js";
import { stepEdges } from "./steps.js";
import { unsplit } from "./unsplit.js";
import { timeText } from "./words.js";

const ROUNDING = 1e-3; // ns
const seen = (time) => (time < ROUNDING ? 0 : time);

/** How much time of [t0, t1) a rank computes, moves bytes, does either, and stands still. */
function timesOf(run, { lanes, busy, blocked }, t0, t1) {
  const within = ({ begins, ends, sums }) => {
    const until = (time) => before(begins, ends, sums, 0, begins.length, time);
    return until(t1) - until(t0);
  };
  return {
    compute: rowBusy(run, lanes[0], t0, t1),
    communication: rowBusy(run, lanes[1], t0, t1),
    either: within(busy),
    blocked: within(blocked),
  };
}

/** How much of the time ranks compute, move bytes that nothing hides, and stand still, ns of the mean rank. */
export function meanTimes(run) {
  const [t0, t1] = measuredPart(run, 0, run.span);
  const all = [...run.ranks.values()].map((rank) => timesOf(run, rank, t0, t1));
  const mean = (of) => meanOf(all, of);
  const busiest = Math.max(...all.map(({ communication }) => communication));
  const isKnown = isKnownOf(run);
  return {
    compute: isKnown ? mean(({ compute }) => compute) : Number.NaN,
    exposed: isKnown ? mean(({ compute, either }) => either - compute) : Number.NaN,
    blocked: mean(({ blocked }) => blocked),
    moving: mean(({ communication }) => communication),
    busiest,
    where: [...run.ranks.keys()][all.findIndex(({ communication }) => communication === busiest)],
  };
}

/** Bytes and calls of messages and of collectives that begin in [t0, t1) of a rank. */
function callsOf(run, lane, t0, t1) {
  if (!lane) return { sent: 0, received: 0, messages: 0, payload: 0, calls: 0 };
  const { first, last } = lane;
  const a = lowerBound(run.start, first, last, t0);
  const b = t1 >= run.span ? last : lowerBound(run.start, first, last, t1);
  const [sends, collectives, receives] = run.sums;
  return {
    sent: sends.bytes[b] - sends.bytes[a],
    received: receives.bytes[b] - receives.bytes[a],
    messages: sends.calls[b] - sends.calls[a],
    payload: collectives.bytes[b] - collectives.bytes[a],
    calls: collectives.calls[b] - collectives.calls[a],
  };
}

/** Bus bandwidth of the collectives that begin in [t0, t1), bytes per second. */
function busBandwidth(run, t0, t1) {
  const { collective_start: start, collective_duration: duration, collective_bus_bytes: busBytes } = run;
  let bytes = 0;
  let took = 0;
  for (let c = 0; c < start.length; c++) {
    if (start[c] < t0 || start[c] >= t1) continue;
    bytes += busBytes[c];
    took += duration[c];
  }
  return (bytes / took) * 1e9;
}

/** The part of an interval in which anything but names was recorded: a name makes no run longer. */
function measuredPart({ measured }, t0, t1) {
  if (!measured) return [t0, t1];
  const from = Math.min(Math.max(t0, measured[0]), measured[1]);
  return [from, Math.max(Math.min(t1, measured[1]), from)];
}

const LITTLE = 0.1; // of the longest wait: less is none beside it
export const NOTED = 0.005; // of the time: less is 0 % in words

/** The ranks that wait, and not next to nothing beside the one that waits longest. */
function whoWaits(ranks, time) {
  const least = Math.max(NOTED * time, LITTLE * Math.max(...ranks.map(({ blocked }) => blocked)));
  return ranks.filter(({ blocked }) => blocked >= least && blocked);
}

const ALIKE = 0.02; // of the time: what differs by less is alike in words
const areAlike = (times, time) => Math.max(...times) - Math.min(...times) < ALIKE * time;

const FEW = 9; // waits

/** How often some ranks stand still, and how long in words, where each does as often and always for that; else []. */
function equalWaits({ ranks }, waiting) {
  const all = waiting.map((rank) => {
    const { begins, ends } = ranks.get(rank).blocked;
    return Array.from(begins.slice(0, FEW), (begin, k) => timeText(ends[k] - begin));
  });
  const [counts, words] = [new Set(all.map(({ length }) => length)), new Set(all.flat())];
  return counts.size * words.size === 1 ? [...counts, ...words] : [];
}

/** Which ranks wait, whether equally long, and whether they may be named: where an exercise asks, no headline does. */
function waiters(run, ranks, time) {
  const who = whoWaits(ranks, time);
  const waits = who.map(({ blocked }) => blocked);
  const waiting = who.map(({ rank }) => rank);
  const areNamed = /[Rr]anks? \d/.test(run.title);
  return { waiting, equal: equalWaits(run, waiting), areAlike: areAlike(waits, time), areNamed };
}

const meanOf = (all, of) => all.reduce((sum, each) => sum + of(each), 0) / all.length;

/** Means over some ranks and over the others, of { rank } and what `of` reads of each. */
const meansOf = (all, ranks, of) =>
  [true, false].map((isTheirs) =>
    meanOf(
      all.filter(({ rank }) => ranks.includes(rank) === isTheirs),
      of,
    ),
  );

/** { ranks, compute, others, hidden } of the ranks that come last: how long they compute, and the others: means, ns. */
function lateOf(run, all, window) {
  const ranks = lateRanks(run);
  if (!ranks.length) return undefined;
  const [compute, others] = meansOf(all, ranks, ({ computed }) => computed);
  return { ranks, compute, others, hidden: hiddenOf(run, ranks, window) };
}

/** How long the mean of the others waits for the late ranks while it computes, ns. */
function hiddenOf(run, late, window) {
  const isLate = ({ rank }) => late.includes(rank);
  const calls = run.rows.filter(({ lane }) => lane === COMMUNICATION);
  const comers = calls.filter(isLate);
  const long = (row) => hiddenWaits(run, row, comers, window).reduce((sum, [begin, end]) => sum + end - begin, 0);
  return meanOf(
    calls.filter((row) => !isLate(row)),
    long,
  );
}

/** { rank, busy, others, waiting } of a rank that works while others wait: how long it is busy, they are, they wait. */
function worksOf(run, all) {
  const rank = workingRank(run);
  if (rank === undefined) return undefined;
  const [busy, others] = meansOf(all, [rank], (each) => each.busy);
  return { rank, busy, others, waiting: meansOf(all, [rank], ({ blocked }) => blocked)[1] };
}

/** Parts of the time of all ranks; of real processes it is not recorded when they compute. */
const sharesOf = (sums, all, isKnown) => ({
  blockedShare: sums.blocked / all,
  busyShare: sums.busy / all,
  computeShare: isKnown ? sums.compute / all : Number.NaN,
  bubble: isKnown ? seen(all - sums.compute) / all : Number.NaN,
  exposedShare: sums.exposed / sums.communication,
});

/** The numbers of one rank: of its times and calls, and how long it computes from the first edge to the last. */
function rankOf(run, own, t0, t1, edges) {
  const { rank, lanes } = own;
  const { either: busy, ...times } = timesOf(run, own, t0, t1);
  const computed = edges ? rowBusy(run, lanes[0], edges[0], edges.at(-1)) : times.compute;
  return { rank, ...times, busy, computed, exposed: busy - times.compute, ...callsOf(run, lanes[1], t0, t1) };
}

/** The numbers of the interval [from, to). */
export function numbers(shown, from, to) {
  const run = unsplit(shown);
  const [t0, t1] = measuredPart(run, from, to);
  // Where nothing was recorded, or all at one instant, there is no time to have a share of.
  const all = run.span ? Math.max(t1 - t0, 1e-9) * run.ranks.size : Number.NaN;
  const edges = from <= 0 && to >= run.span ? stepEdges(run) : undefined;
  const names = ["busy", "blocked", "compute", "communication", "exposed", "sent", "messages", "payload", "calls"];
  const sums = {};
  const ranks = [...run.ranks.values()].map((rank) => rankOf(run, rank, t0, t1, edges));
  for (const name of names) sums[name] = ranks.reduce((sum, rank) => sum + rank[name], 0);
  sums.exposed = seen(sums.exposed);
  sums.blocked = seen(sums.blocked);
  const busiest = ranks.reduce((a, b) => (b.communication > a.communication ? b : a), ranks[0] ?? {});
  const exposures = ranks.map(({ exposed }) => exposed);
  return {
    window: run.span && t1 - t0,
    numRanks: run.ranks.size,
    ...sums,
    ...waiters(run, ranks, t1 - t0),
    areExposedAlike: areAlike(exposures, t1 - t0),
    busiest: busiest.rank,
    moves: ranks,
    edges,
    title: run.title ?? "",
    inTime: run.in_time,
    works: worksOf(run, ranks),
    late: lateOf(run, ranks, [t0, t1]),
    latency: latencies(run),
    ...sharesOf(sums, all, isKnownOf(run)),
    busbw: busBandwidth(run, t0, t1),
  };
}
