// One schedule of several: heading, rows of its stages, arrows between operations, axis, faults.

import { hue } from "../figure/colours.js";
import { line, tag, text, wrapped } from "../figure/markup.js";
import { most } from "../figure/numbers.js";
import { axis } from "../figure/plot.js";
import { percent, seconds } from "../figure/units.js";
import { bubbleOf, criticalPath, heldBy, idleOf, peakOf } from "./facts.js";
import { chunksOf, ended, nameOf, needsOf } from "./operations.js";
import { BAR, ROW, short, StageRows } from "./stage_row.js";

const MOST_FAULTS = 3;

const known = new WeakMap(); // facts by schedule: drawing it anew asks for them again

/** What is known of a schedule however it is drawn. */
function factsOf(schedule) {
  const { stages } = schedule;
  const operations = stages.flat().map(([operation]) => operation);
  const v = chunksOf(operations);
  const m = new Set(operations.filter(([kind]) => kind === "F").map(([, microbatch]) => microbatch)).size;
  const p = stages.length;
  const isStuck = schedule.stuck.length > 0;
  const parts = v * (operations.some(([kind]) => kind === "W") ? 3 : 1);
  const held = stages.map((row) => heldBy(row, v));
  return {
    p,
    m,
    isStuck,
    parts,
    held,
    peaks: held.map(peakOf),
    bubble: bubbleOf(stages),
    formula: (p - 1) / (parts * m + p - 1),
    idle: isStuck ? [] : idleOf(stages),
    table: stages.map((row) => row.map(([operation]) => nameOf(operation)).join(" ")),
  };
}

/** Those facts, and where the schedule's times lie. */
export function layOut(schedule, which, scene) {
  const { stages, placed } = schedule;
  if (!known.has(schedule)) known.set(schedule, factsOf(schedule));
  const facts = known.get(schedule);
  const reach = scene.longest(placed);
  const end = reach * (facts.isStuck ? 1.25 : 1);
  const path = scene.critical && !facts.isStuck ? criticalPath(stages, placed ? 0 : scene.values.tm, schedule.vee) : [];
  return {
    ...schedule,
    ...facts,
    which,
    reach,
    path,
    onPath: new Set(path.map(String)),
    x: (time) => scene.left + (time / end) * scene.wide,
    unit: placed ? seconds : short,
  };
}

/** The formula's letters and numbers, and whether the schedule's bubble is what it says. */
function closedForm({ bubble, formula, parts, p, m }) {
  const closed = `(P−1)/(${parts > 1 ? parts : ""}M+P−1) = ${p - 1}/${parts * m + p - 1}`;
  return [closed, percent(bubble - formula) === percent(0)];
}

const WIDE = 700; // pixels of a picture with room for what the formula's letters are

/** The bubble as its formula has it, or both where they differ. */
function formulaOf(laid, width) {
  const [closed, isAsFormula] = closedForm(laid);
  const measured = isAsFormula ? "bubble " : `bubble ${percent(laid.bubble)}, formula `;
  const letters = width < WIDE ? "" : `, P = ${laid.p} stages, M = ${laid.m} microbatches`;
  return `${measured}${closed} = ${percent(laid.formula)}${letters}`;
}

/** Name and bubble, with the formula's numbers. */
function heading(laid, y, { width }) {
  const { bubble, isStuck } = laid;
  const name = text(0, y + 16, laid.name + (laid.edited ? ", edited" : ""), "bold");
  const hook = { "data-bubble": isStuck ? "" : bubble.toFixed(6) };
  const told = text(
    width,
    y + 16,
    isStuck ? "cannot run" : formulaOf(laid, width),
    isStuck ? "end bad" : "end grey",
    hook,
  );
  return { svg: name + told, height: 24 };
}

/** An arrow between two spots, from the end of one to the begin of the other. */
function arrow(from, to, more) {
  if (!from || !to) return "";
  return line(from[1], from[2] + 10, to[0], to[2] + 10, "now", { "marker-end": "url(#lk-arrow)", ...more });
}

/** Messages of the microbatch that is followed, the critical path, and what stuck stages wait for. */
function arrows(laid, spots, follow) {
  const { stages, path, blocked } = laid;
  const { needs } = follow >= 0 ? needsOf(laid.lists ?? [], laid.vee) : {};
  const spot = (s, operation) => spots[s + nameOf(operation)];
  const messages = stages.flatMap((placed, s) =>
    placed.flatMap(([operation]) => {
      if (follow < 0 || operation[1] !== follow) return [];
      const others = needs(s, operation).filter(([t]) => t !== s);
      return others.map(([t, wanted]) =>
        arrow(spot(t, wanted), spot(s, operation), { "data-message": `${t}:${nameOf(wanted)}` }),
      );
    }),
  );
  const way = path.map(([s, k]) => spot(s, stages[s][k][0]));
  const steps = way.slice(1).map((from, k) => arrow(from, way[k], { style: `stroke:${hue("path")}` }));
  return messages.join("") + steps.join("") + blocked.map((each) => waitArrow(laid, each, spot)).join("");
}

/** A bow from what is missing to what waits for it: red where that keeps all from going on, grey where it follows. */
function waitArrow({ culprits }, [s, operation, t, wanted], spot) {
  const ends = [spot(t, wanted), spot(s, operation)];
  if (!ends[0] || !ends[1]) return "";
  const [a, b] = ends.map(([from, to, y]) => [(from + to) / 2, y + BAR]);
  const d = `M${a}Q${(a[0] + b[0]) / 2} ${Math.max(a[1], b[1]) + 24} ${b}`;
  const hook = { "data-needs": `${s}:${nameOf(operation)}<${t}:${nameOf(wanted)}` };
  const kind = culprits.includes(s + nameOf(operation)) ? "bad culprit" : "after";
  return tag("path", { class: kind, d, "marker-end": "url(#lk-arrow)", ...hook });
}

function faultLines(faults, y, width) {
  let svg = "";
  let height = 0;
  for (const fault of faults.slice(0, MOST_FAULTS)) {
    const [words, more] = wrapped(fault, y + height + 15, 0.92 * width, "bad");
    svg += words;
    height += more + 1;
  }
  return { svg, height };
}

/** { svg, height, when, over }: the picture of a schedule from y on, and what its rows found. */
export function drawSchedule(laid, top, scene) {
  const { width, left, now } = scene;
  const rows = new StageRows(laid, scene);
  const head = heading(laid, top, scene);
  const first = top + head.height;
  let svg = head.svg + laid.stages.map((_, s) => rows.row(s, first + s * ROW)).join("");
  svg += arrows(laid, rows.spots, scene.follow);
  let y = first + laid.p * ROW;
  if (now < Infinity) svg += line(laid.x(now), first - 3, laid.x(now), y, "now");
  svg += text(0, y + 18, "time", "small grey");
  svg += axis(left, y + 2, laid.x(laid.reach) - left, laid.reach, laid.unit);
  y += 28;
  const faults = faultLines(laid.faults, y, width);
  return { svg: svg + faults.svg, height: y + faults.height + 10 - top, when: rows.when, over: rows.over };
}

/** When the last operation of all measured, or of all planned schedules ends. */
export function longestOf(shown) {
  return (measured) => {
    const alike = shown.filter((schedule) => !schedule.placed === !measured);
    return most([1e-12, ...alike.map(({ stages, model }) => ended([...stages, ...(model ?? [])]))]);
  };
}
