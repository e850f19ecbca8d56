// Rows whose events overlap, or whose calls were blocked, cut into segments that do neither.

import { BLOCKED, COMMUNICATION, RECEIVE, REGION, SEND, labelOf } from "./kinds.js";
import { lowerBound } from "./search.js";

/** Cut each row into disjoint segments, each with the event that owns it: the last begun of those that overlap. */
export function cutIntoSegments(run) {
  const { category, rows } = run;
  const isWhole = !run.cut_event?.length && !run.blocked_start?.length;
  const segments = { begins: [], ends: [], owners: [], categories: [] };
  const stills = stillsOf(run);
  for (const row of rows) {
    row.from = segments.begins.length;
    const still = stills.get(row.rank);
    if (row.lane === COMMUNICATION && !isWhole) cutCalls(run, row, still, segments);
    else cutRow(run, row, segments);
    row.to = segments.begins.length;
    if (row.lane === COMMUNICATION && goesBothWays(run, row)) row.tracks = tracksOf(run, row, still, segments);
  }
  run.segmentStart = Float64Array.from(segments.begins);
  run.segmentEnd = Float64Array.from(segments.ends);
  run.owner = Uint32Array.from(segments.owners);
  run.segmentCategory = Uint8Array.from(run.owner, (event, s) => segments.categories[s] ?? category[event]);
}

/** What the two tracks of a row leave out in which bytes go both ways at once: above it comes, below it goes. */
const WAYS = [SEND, RECEIVE];
const MOST = 5000; // calls of a row that can be told apart

/** Whether a rank sends while it receives. */
function goesBothWays(run, row) {
  if (row.last - row.first > MOST) return false;
  const { start, end, event } = movesOf(run, row);
  const ways = event.map((each) => WAYS.indexOf(labelOf(run, each)[2]));
  return start.some((begin, k) => begin < end[k - 1] && ways[k] + ways[k - 1] === 1); // of both, not of one twice
}

/** The two tracks of such a row, with segments of their own. */
function tracksOf(run, row, still, segments) {
  const { begins, ends } = segments;
  return WAYS.map((skips) => {
    const track = { ...row, skips, from: begins.length, longest: 0 };
    cutCalls(run, track, still, segments);
    track.to = begins.length;
    for (let s = track.from; s < track.to; s++) track.longest = Math.max(track.longest, ends[s] - begins[s]);
    return track;
  });
}

/** When each rank stands still: where its intervals begin and end in the columns. */
export function stillsOf({ blocked = [] }) {
  const found = new Map();
  let at = 0;
  for (const [rank, count] of blocked) {
    found.set(rank, [at, at + count]);
    at += count;
  }
  return found;
}

/** Cut a row of calls: into those stretches in which bytes moved, and where the rank stood still into that. */
function cutCalls(run, row, still, segments) {
  const { begins, ends, owners, categories } = segments;
  const moving = { begins: [], ends: [], owners: [] };
  const moves = movesOf(run, row);
  cutRow(moves, { first: 0, last: moves.start.length }, moving);
  const [from, stop] = still ?? [0, 0];
  let next = from;
  let call = row.first;
  const addStill = (until) => {
    for (; next < stop && run.blocked_start[next] < until; next++) {
      const begin = run.blocked_start[next];
      while (call + 1 < row.last && run.start[call + 1] <= begin) call++;
      if (row.first === row.last) continue; // it waits for calls that are not shown
      const owner = callAt(run, row, call, begin);
      if (run.lanesOf && !(run.start[owner] <= begin && begin < run.end[owner])) continue; // on another stream
      begins.push(begin);
      ends.push(run.blocked_end[next]);
      owners.push(owner);
      categories[begins.length - 1] = BLOCKED;
    }
  };
  moving.begins.forEach((begin, s) => {
    addStill(begin);
    begins.push(begin);
    ends.push(moving.ends[s]);
    owners.push(moves.event[moving.owners[s]]);
  });
  addStill(Infinity);
}

/** The call that a rank stands in at a time: the last one begun by then that had not ended. */
function callAt({ end }, row, last, time) {
  for (let call = last; call >= row.first && call > last - 64; call--) if (end[call] > time) return call;
  return last;
}

/** Stretches in which the calls of a row moved bytes, as events of their own; `event` says whose they are. */
function movesOf(run, { first, last, skips }) {
  const { start, end, cut_event: cuts = [], cut_start: from, cut_end: to } = run;
  const found = [];
  let cut = lowerBound(cuts, 0, cuts.length, first);
  for (let event = first; event < last; event++) {
    const isShown = labelOf(run, event)[2] !== skips;
    if (isShown && cuts[cut] !== event) found.push([start[event], end[event], event]);
    for (; cuts[cut] === event; cut++) {
      if (isShown && to[cut] > from[cut]) found.push([from[cut], to[cut], event]);
    }
  }
  found.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  return { start: found.map(([a]) => a), end: found.map(([, b]) => b), event: found.map(([, , event]) => event) };
}

/** Cut one row; `open` are the events under way, the last begun on top. */
function cutRow({ start, end }, { first, last }, { begins, ends, owners }) {
  const open = [];
  let now = -Infinity;
  const advance = (until) => {
    while (open.length && now < until) {
      const top = open[open.length - 1];
      const stop = Math.min(end[top], until);
      if (stop > now) {
        begins.push(now);
        ends.push(stop);
        owners.push(top);
        now = stop;
      }
      if (end[top] <= now) open.pop();
    }
    now = Math.max(now, until);
  };
  for (let i = first; i < last; i++) {
    advance(start[i]);
    open.push(i);
  }
  advance(Infinity);
}

/** Add the time covered before each segment, and the longest segment of each row. */
export function addCovered(run, seen) {
  const { segmentStart, segmentEnd, segmentCategory, rows } = run;
  run.covered = new Float64Array(segmentStart.length + 1);
  for (const row of rows) {
    let total = 0;
    row.longest = 0;
    for (let s = row.from; s < row.to; s++) {
      const long = segmentEnd[s] - segmentStart[s];
      run.covered[s] = total;
      if (segmentCategory[s] !== BLOCKED) total += long;
      row.longest = Math.max(row.longest, long);
      if (row.lane !== REGION) seen[segmentCategory[s]] = 1;
    }
  }
}
