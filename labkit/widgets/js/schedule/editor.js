// The schedules that are shown: placed for the sliders' values, edited by their reader, with one operation chosen.

import { range } from "../figure/numbers.js";
import { FORMS, inForm, parse, proseOf } from "./operations.js";
import { place } from "./placing.js";

const numbersIn = (words) => words.split(",").map(Number);
const isSame = (one, other) => String(one) === String(other);

/** [[operation as a word, start, end]] of each stage with its operation read. */
const read = (rows) => rows.map((row) => row.map(([word, start, end]) => [parse(word)[0], start, end]));

/** An operation is meant by [schedule, stage, position]. */
export class Editor {
  constructor(data) {
    this.data = data;
    this.edits = {};
    this.critical = false;
    this.chosen = undefined;
    this.over = undefined;
    this.formed = {}; // lists of the forms, by name and sizes
    this.seen = []; // each schedule as it was drawn last
    this.forms = FORMS.filter((form) => !data.schedules.some((schedule) => schedule.form === form));
  }

  sizes({ p = this.data.at[0], m = this.data.at[1] }) {
    return [p, m].map(Number);
  }

  /** Under which name an edit of a schedule is kept: of other sizes it is another schedule. */
  keyOf(schedule, values) {
    return schedule.name + this.sizes(values);
  }

  /** The schedules as they stand: those of the data, and the form they are compared with; kept until they change. */
  shown(values) {
    const placing = { ...values, limit: 0, follow: 0 }; // these two move no operation
    const key = JSON.stringify([placing, this.edits]);
    if (this.key !== key) [this.key, this.kept] = [key, this.made(values)];
    return this.kept;
  }

  made(values) {
    const forms = this.forms.filter((form) => proseOf(form) === values.and);
    const compared = forms.map((form) => ({ name: values.and, form }));
    return [...this.data.schedules, ...compared].map((schedule) =>
      schedule.placed ? this.measured(schedule) : this.planned(schedule, values),
    );
  }

  measured(schedule) {
    const stages = read(schedule.placed);
    const lists = stages.map((placed) => placed.map(([operation]) => operation));
    return {
      ...schedule,
      stages,
      lists,
      model: read(schedule.model),
      stuck: [],
      faults: [],
      blocked: [],
      culprits: [],
    };
  }

  planned(schedule, values) {
    const [p, m] = this.sizes(values);
    const size = `${p},${m}`;
    const edited = this.edits[this.keyOf(schedule, values)];
    const given = () => schedule.lists[size]?.map(parse);
    const formed = () => (this.formed[schedule.form + size] ??= range(p).map((s) => inForm(schedule.form, s, p, m)));
    const lists = edited ?? (schedule.form ? formed() : given());
    const vee = schedule.form === "zb_v";
    const found = place(lists ?? range(p).map(() => []), { ...values, vee });
    const told = edited ? [] : (schedule.faults?.[size] ?? []);
    return { ...schedule, vee, lists, ...found, edited, faults: [...told, ...found.faults] };
  }

  /** Times at which an operation of any schedule begins; computed once for what is shown. */
  moments(shown) {
    if (this.timed !== shown) [this.timed, this.times] = [shown, momentsOf(shown)];
    return this.times;
  }

  /** The operation at a place, as [schedule, stage, operation], if there is one. */
  operationAt(shown, spot) {
    if (!spot) return undefined;
    const [k, s, at] = spot;
    const operation = shown[k]?.lists?.[s]?.[at];
    return operation && [k, s, operation];
  }

  /** Give a stage of a schedule another order. */
  order(values, schedule, s, operations) {
    const lists = schedule.lists.map((list, t) => (t === s ? operations : list));
    this.edits[this.keyOf(schedule, values)] = lists;
  }

  get isEdited() {
    return Object.keys(this.edits).length > 0;
  }

  undo() {
    this.edits = {};
  }

  /** Choose the operation before (by -1) or after (1) the chosen one, of all schedules. */
  choose(by, values) {
    const all = spots(this.shown(values));
    const now = this.chosen ? all.findIndex((spot) => isSame(spot, this.chosen)) : -1;
    const none = by > 0 ? -1 : all.length;
    this.chosen = all[(now < 0 ? none : now) + by] ?? this.chosen;
  }

  /** Let the chosen operation change places with the one before or after it. */
  move(by, values) {
    const shown = this.shown(values);
    if (!this.operationAt(shown, this.chosen)) return;
    const [k, s, at] = this.chosen;
    const operations = [...shown[k].lists[s]];
    const to = at + by;
    if (shown[k].placed || !operations[to]) return;
    [operations[at], operations[to]] = [operations[to], operations[at]];
    this.order(values, shown[k], s, operations);
    this.chosen = [k, s, to];
  }

  /** Which operation lies there: [schedule, stage, position]. */
  spotAt({ mark, x }) {
    const own = mark.closest("[data-pick]");
    if (own) return numbersIn(own.dataset.pick);
    const row = mark.closest("[data-row]");
    if (!row) return undefined;
    const [k, s] = numbersIn(row.dataset.row);
    const laid = this.seen[k];
    const at = laid.stages[s].findIndex(([, start, end]) => laid.x(start) <= x && x < laid.x(end));
    return at < 0 ? undefined : [k, s, at];
  }

  /** Take note of what the pointer is over; return whether that is another operation than before. */
  hover(spot) {
    const before = this.over;
    this.over = this.spotAt(spot);
    return !isSame(this.over, before);
  }

  pick(spot) {
    this.chosen = this.spotAt(spot);
  }

  /** Take an operation along: where it is dragged to, its stage's order is what is seen, at once. */
  grab(spot, values) {
    const taken = this.spotAt(spot);
    const schedule = taken && this.shown(values)[taken[0]];
    if (!schedule || schedule.placed) return undefined;
    const [k, s, at] = taken;
    const operations = schedule.lists[s];
    const { x } = this.seen[k];
    const others = schedule.stages[s].filter((_, each) => each !== at).map(([, start, end]) => x((start + end) / 2));
    const [, start, end] = schedule.stages[s][at] ?? [];
    const grip = start === undefined ? 0 : x((start + end) / 2) - spot.x;
    return ({ x: now }) => {
      const to = others.filter((middle) => middle < now + grip).length;
      const rest = operations.filter((_, each) => each !== at);
      this.order(values, schedule, s, [...rest.slice(0, to), operations[at], ...rest.slice(to)]);
      this.chosen = [k, s, to];
      this.over = undefined;
    };
  }
}

/** Begins of operations, each once. */
function momentsOf(shown) {
  const starts = Float64Array.from(
    shown.flatMap(({ stages }) => stages.flatMap((row) => row.map(([, start]) => start))),
  );
  starts.sort();
  const apart = 1e-9 * (starts.at(-1) ?? 0);
  return starts.filter((time, k) => k === 0 || time - starts[k - 1] > apart);
}

/** Where all operations stand, in order. */
function spots(shown) {
  return shown.flatMap(({ lists = [] }, k) => lists.flatMap((list, s) => list.map((_, at) => [k, s, at])));
}
