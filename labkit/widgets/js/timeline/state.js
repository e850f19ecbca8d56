// What a view shows: its runs, and what of them is in view.

import { decode, unpack } from "./columns.js";

/** What is drawn and where: everything that paints and everything that is computed takes this. */
export const emptyState = () => ({
  runs: [],
  view: [0, 1], // what is in view, ns
  whole: [0, 1],
  offset: 0, // of the second run
  ratio: 1,
  width: 0,
  right: 0, // where time ends in it
  untold: false, // whether some waits had no room for their words
  mute: false, // whether a narrow picture leaves no room for any
  overlay: false,
  folded: true, // ranks that are alike
  cluster: undefined, // one row a rank; where nobody chose, of more than eight
  streams: undefined, // whether each has a row; where nobody chose, if there is room
  tall: 1, // times as high as rows are at first
  memory: false, // whether it is shown
  spans: false, // whether brackets are shown that say no more than colours do
  lit: new Set(), // events that are one thing with the one under the pointer, or in focus
  arrows: true,
  showPath: false,
  focus: null, // { run, event }
  measured: null, // [from, to]
  cursor: null,
  from: null, // where measuring by keys began
  widths: new Map(), // of texts, pixels
  hatched: [], // of each category
  dotted: [],
  marks: new Set(), // names of what was drawn last: categories, and what lies over the bars
  strips: false, // whether each of two runs is one row
  low: false, // whether rows have only the height that names need
  room: 640, // pixels that rows may take without being scrolled
});

/** A run from what Python packed, with its memory, its clocks' errors and its critical path. */
export function runOf(packed) {
  const run = decode(packed);
  const errors = new Map(run.clock);
  run.errorOf = (rank) => errors.get(rank) ?? 0;
  addPath(run, packed.path);
  run.held = new Map(run.memory.map((rank) => [rank, memoryOf(run, rank)]));
  return run;
}

/** Give a run its critical path, where that is known. */
export function addPath(run, packed) {
  run.path = packed && unpack(packed);
}

/** Whether some ranks' memory changes and that of others does not, or less: worth a row where no message crosses it. */
export function holdsUnequally(run) {
  const most = [...run.held.values()].map((held) => held.most);
  return (
    most.length > 0 &&
    !run.flow_from.length &&
    (most.length < run.ranks.size || Math.max(...most) > 1.02 * Math.min(...most))
  );
}

/** What a rank held over time, the most of it, and when that was. */
function memoryOf(run, rank) {
  const time = run[`memory_time_${rank}`];
  const held = run[`memory_held_${rank}`];
  const most = held.reduce((a, b) => Math.max(a, b), 0);
  return { time, held, most, peak: time[held.indexOf(most)] };
}
