// The schedules that are shown: placed for the sliders' values, edited by their reader, with one operation chosen.

import { range } from "../figure/numbers.js";
import { FORMS, inForm, parse } from "./operations.js";
import { place } from "./placing.js";

const numbersIn = (mark) => mark?.dataset.pick.split(",").map(Number);
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
    const compared = this.forms.includes(values.and) ? [{ name: values.and, form: values.and }] : [];
    return [...this.data.schedules, ...compared].map((schedule) =>
      schedule.placed ? this.measured(schedule) : this.planned(schedule, values),
    );
  }

  measured(schedule) {
    const stages = read(schedule.placed);
    const lists = stages.map((placed) => placed.map(([operation]) => operation));
    return { ...schedule, stages, lists, model: read(schedule.model), stuck: [], faults: [], blocked: [] };
  }

  planned(schedule, values) {
    const [p, m] = this.sizes(values);
    const size = `${p},${m}`;
    const edited = this.edits[this.keyOf(schedule, values)];
    const given = () => schedule.lists[size]?.map(parse);
    const formed = () => range(p).map((s) => inForm(schedule.form, s, p, m));
    const lists = edited ?? (schedule.form ? formed() : given());
    const vee = schedule.form === "zb_v";
    const found = place(lists ?? range(p).map(() => []), { ...values, vee });
    const told = edited ? [] : (schedule.faults?.[size] ?? []);
    return { ...schedule, vee, lists, ...found, edited, faults: [...told, ...found.faults] };
  }

  /** Times at which an operation of any schedule begins. */
  moments(shown) {
    const starts = shown.flatMap(({ stages }) => stages.flat().map(([, start]) => Number(start.toPrecision(9))));
    return [...new Set(starts)].sort((a, b) => a - b);
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

  /** Take note of what the pointer is over; return whether that is another operation than before. */
  hover(mark) {
    const before = this.over;
    this.over = numbersIn(mark.closest("[data-pick]"));
    return !isSame(this.over, before);
  }

  /** Choose the operation of a mark; where it was dragged, its stage's order becomes what is seen. */
  pick(mark, far, values) {
    const [k, s, at] = numbersIn(mark);
    const schedule = this.shown(values)[k];
    const row = [...mark.ownerSVGElement.querySelectorAll(`[data-pick^="${k},${s},"]`)];
    const middle = (one) => Number(one.getAttribute("x")) + one.getAttribute("width") / 2 + (one === mark ? far : 0);
    const places = row.sort((a, b) => middle(a) - middle(b)).map((one) => numbersIn(one)[2]);
    if (far && !schedule.placed) {
      const operations = places.map((from) => schedule.lists[s][from]);
      this.order(values, schedule, s, operations);
    }
    this.chosen = [k, s, schedule.placed ? at : places.indexOf(at)];
  }
}

/** Where all operations stand, in order. */
function spots(shown) {
  return shown.flatMap(({ lists = [] }, k) => lists.flatMap((list, s) => list.map((_, at) => [k, s, at])));
}
