// A device's streams: a run with a row for each of them, in place of a row for each lane.

import { complete } from "./complete.js";
import { REGION } from "./kinds.js";
import { asCluster, hiddenRanks } from "./layout.js";
import { once } from "./once.js";
import { unsplit } from "./unsplit.js";

const MOST_ROWS = 32; // that have room with arrows between them

/** Columns that name events, each with those beside it. */
const NAMING = [
  ["flow_from", "flow_to"],
  ["held_to", "held_from", "held_since", "held_until"],
  ["cut_event", "cut_start", "cut_end"],
  ["call_event", "call_of"],
];

/** Where the row of an event stands among its rank's: names above, streams in their order, the host below. */
const placeIn = ({ stream }, row, event) => (row.lane === REGION ? -1 : stream[event] || Infinity);

/** The events of some rows by the places of their rows: [[place, events]], from the top. */
function placesOf(run, rows) {
  const places = new Map();
  for (const row of rows) {
    for (let event = row.first; event < row.last; event++) {
      const place = placeIn(run, row, event);
      if (places.has(place)) places.get(place).push(event);
      else places.set(place, [event]);
    }
  }
  return [...places].sort(([a], [b]) => a - b);
}

/** How many rows a rank would have at most, and which rows hold more than one stream. */
export const countStreams = once((run) => {
  const several = new Set(run.rows.filter((row) => placesOf(run, [row]).length > 1));
  const ranks = [...run.ranks.keys()].map((rank) => placesOf(run, rowsOf(run, rank)).length);
  return { most: Math.max(...ranks), several };
});

const rowsOf = (run, rank) => run.rows.filter((row) => row.rank === rank);

/** Whether streams have rows: their reader's wish, else where there is room for all of them. */
function isSplit(state) {
  const [run] = state.runs;
  if (state.runs.length > 1 || !run.streams || asCluster(state)) return false;
  const ranks = run.ranks.size - (state.folded ? hiddenRanks(run).size : 0);
  return state.streams ?? ranks * countStreams(unsplit(run)).most <= MOST_ROWS;
}

/** The order of events by stream, and the rows: [rank, lane, number of events] and the name of each. */
function ordered(run) {
  const order = [];
  const rows = [];
  const names = [];
  const byBegin = (a, b) => run.start[a] - run.start[b] || run.end[b] - run.end[a];
  for (const rank of run.ranks.keys()) {
    const own = rowsOf(run, rank);
    const laneOf = (event) => own.find(({ first, last }) => event >= first && event < last).lane;
    for (const [place, events] of placesOf(run, own)) {
      const lanes = new Set([laneOf(events[0]), laneOf(events.at(-1))]); // a stream's lie row after row
      if (lanes.size > 1) events.sort(byBegin);
      rows.push([rank, Math.min(...lanes), events.length]);
      names.push(run.streams[place - 1]);
      for (const event of events) order.push(event);
    }
  }
  return { order, rows, names };
}

/** Columns that name events, of a run whose events stand elsewhere; sorted by where those of the first stand now. */
function renumbered(run, placeOf, [first, ...others]) {
  if (!run[first]) return {};
  const order = [...run[first].keys()].sort((a, b) => placeOf[run[first][a]] - placeOf[run[first][b]]);
  const isEvent = (name) => /_event|_from|_to/.test(name);
  const valueOf = (name, k) => (isEvent(name) ? placeOf[run[name][k]] : run[name][k]);
  const columns = [first, ...others];
  return Object.fromEntries(columns.map((name) => [name, run[name].constructor.from(order, (k) => valueOf(name, k))]));
}

/** The run with a row for each stream; all that does not hang on rows is the run's own. */
function split(run) {
  const { order, rows, names } = ordered(run);
  const placeOf = new Uint32Array(order.length);
  order.forEach((event, place) => {
    placeOf[event] = place;
  });
  const made = Object.assign(Object.create(run), { lanesOf: run, order, placeOf });
  for (const name of ["start", "duration", "bytes", "label", "stream"]) {
    made[name] = run[name].constructor.from(order, (event) => run[name][event]);
  }
  for (const columns of NAMING) Object.assign(made, renumbered(run, placeOf, columns));
  complete(made, rows);
  made.rows.forEach((row, k) => {
    row.stream = names[k];
  });
  made.ranks = run.ranks;
  return made;
}

/** Show the run that its reader wants, or that fits: with a row for each stream, or for each lane. */
export function settleStreams(view) {
  const { state } = view;
  const [shown] = state.runs;
  const run = unsplit(shown);
  if (!run.streams || isSplit(state) === (shown !== run)) return;
  if (shown === run) run.byStream ??= split(run);
  const placeOf = shown === run ? run.byStream.placeOf : shown.order;
  if (state.focus?.run === 0) state.focus = { run: 0, event: placeOf[state.focus.event] };
  [state.lit, view.over] = [new Set(), undefined];
  state.runs = [shown === run ? run.byStream : run, ...state.runs.slice(1)];
}

const FOLDED = "Streams are folded into the rows of their lanes (▸); press s, or click a lane's name, to open them.";

/** What is said of a run whose streams are folded; "" of any other. */
export function foldedWords(state) {
  const [run] = state.runs;
  return run.streams && !isSplit(state) && countStreams(unsplit(run)).several.size ? FOLDED : "";
}

/** Give streams rows of their own, or fold them. */
export function toggleStreams(view) {
  const { state } = view;
  const { runs } = state;
  if (!runs[0].streams) view.say("No streams were recorded.");
  else if (runs.length > 1) view.say("Streams have rows where a run is shown alone.");
  else {
    state.streams = runs[0] === unsplit(runs[0]);
    if (state.streams) state.cluster = false;
    view.resize();
    view.say(state.streams ? "Each stream has a row." : FOLDED);
  }
}
