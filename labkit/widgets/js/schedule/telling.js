// What is said of a schedule: its numbers, its rows of the table, its sentence.

import { most, sum } from "../figure/numbers.js";
import { percent } from "../figure/units.js";
import { ended, nameOf, turnsOf } from "./operations.js";

/** Whether every schedule idles as long as its formula says. */
export const areAsFormula = (all) =>
  all.every(({ isStuck, bubble, formula }) => isStuck || percent(bubble - formula) === percent(0));

/** A schedule's row of numbers; `first` is the schedule that the others are held against. */
export function numbersOf(laid, over, { limit, first, asFormula }) {
  const { name, isStuck, bubble, formula, stages, path, model, unit, peaks } = laid;
  const whole = ended(stages);
  const numbers = [["bubble", isStuck ? "–" : percent(bubble), isStuck]];
  numbers.push(["microbatches held at most", most(peaks)]);
  if (!asFormula) numbers.push(["off the formula", isStuck ? "–" : percent(bubble - formula)]);
  if (!isStuck) numbers.push(["time", unit(whole)], ...beside(laid, whole, first));
  if (path.length) {
    const busy = sum(path.map(([s, k]) => stages[s][k][2] - stages[s][k][1])) / whole;
    numbers.push(["critical path", `${path.length} operations, ${percent(busy)} compute`]);
  }
  if (model) numbers.push(["measured / predicted", (whole / ended(model)).toFixed(2)]);
  if (limit) {
    const fits = over.length ? `✗ stage ${over.join(", ")}` : "✓";
    numbers.push(["fits in memory", fits, over.length]);
  }
  return [name, numbers];
}

const plural = (many, thing) => `${many} ${thing}${many === 1 ? "" : "es"}`;

/** How long a schedule takes beside the first one, where both are measured or both planned. */
function beside({ which, placed }, whole, first) {
  const isCompared = which && !first.placed === !placed && !first.stuck.length;
  return isCompared ? [[`time vs ${first.name}`, percent(whole / ended(first.stages))]] : [];
}

export function tableRows({ name, table, peaks }) {
  return table.map((order, s) => [name, s, order, peaks[s]]);
}

/** What the schedules cost; of two, what it costs to hold less, or what the faster one saves. */
export function headline(all) {
  const length = ({ stages }) => ended(stages);
  const [less, more] = [...all].sort((a, b) => most(a.peaks) - most(b.peaks) || length(a) - length(b));
  const claims = all.map(claim).join("; ");
  const isPair = all.length === 2 && less.m === more.m && !less.placed === !more.placed;
  if (!isPair || less.isStuck || more.isStuck) return claims;
  const [few, many] = [most(less.peaks), most(more.peaks)];
  const cost = length(less) - length(more);
  const isSame = percent(cost / length(more)) === percent(0);
  if (few === many) {
    if (isSame) return `Same time, and both hold ${plural(many, "microbatch")}`;
    return `${less.name}: ${turnsOf(less, length(less))} instead of ${more.unit(length(more))} in the same memory`;
  }
  if (cost < 0 && !isSame) return claims;
  return `Holding ${plural(few, "microbatch")} instead of ${many} costs ${isSame ? "no time" : turnsOf(less, cost)}`;
}

/** What a schedule costs, in a few words. */
function claim({ name, isStuck, bubble, peaks }) {
  return isStuck ? `${name} cannot run` : `${name} idles ${percent(bubble)}, holds ${most(peaks)} microbatches`;
}

export function sentence({ name, faults, edited, bubble, peaks }, over, limit) {
  const held = `bubble ${percent(bubble)}, at most ${most(peaks)} microbatches held.`;
  const told = faults[0] ?? `${name}${edited ? ", edited, still runs" : ""}: ${held}`;
  if (!limit || !over.length) return told;
  return `${told} ${name}: more than the memory's ${limit} on stage ${over.join(", ")}.`;
}

/** What is said of the operation that is chosen or under the pointer: when it runs, in every schedule. */
export function litSentence(lit, isChosen, shown, when) {
  const [, s, operation] = lit;
  const spans = when.flatMap((times, k) => (times.length ? `${shown[k].name} from ${times.join(" and ")}` : []));
  const told = `${nameOf(operation)} of stage ${s}${spans.length ? ": " : ""}${spans.join(", ")}.`;
  return isChosen ? `Chosen: ${told}` : told;
}
