// One stage of a schedule: its operations, its idle time, what it waits for, what it holds.

import { hue, ink } from "../figure/colours.js";
import { bar, faint, holds, line, rect, tag, text } from "../figure/markup.js";
import { sum } from "../figure/numbers.js";
import { ended, nameOf } from "./operations.js";
import { IDLE, peakOf } from "./facts.js";

/** Pixels of a row, and of a bar in it. */
export const ROW = 58;
export const BAR = 21;

const STRIP = 53; // where the curve of what a stage holds stands, and how high it rises
const HIGH = 29;

/** An operation's colour. */
export const fillOf = (kind) => hue(kind === "F" ? "forward" : "backward");
/** What an odd chunk has at its foot. */
export const ODD = { fill: "#0005", "pointer-events": "none" };
export const STRIPES = "url(#lk-idle0)";
export const EMPTY = "bubble: the stage is idle";
const STUCK = 22; // pixels of an operation that has no time
const THIN = 8; // pixels under which an operation has neither words nor an edge: all of a kind are one shape
const MANY = 400; // operations of a schedule, from which on one that has no room for its name is drawn so too
export const short = (time) => Number(time.toPrecision(4));

/** Whether two operations are one piece of work: a backward is also its parts, a microbatch all its chunks. */
function isSameWork([kind, microbatch], [otherKind, otherMicrobatch]) {
  if (microbatch !== otherMicrobatch) return false;
  const areBackward = kind !== "F" && otherKind !== "F";
  return kind === otherKind || (areBackward && (kind === "B" || otherKind === "B"));
}

/** Draws the stages of one schedule; `laid` is where everything lies, `scene` what all schedules share. */
export class StageRows {
  constructor(laid, scene) {
    this.laid = laid;
    this.scene = scene;
    this.spots = {}; // [from, to, y] in pixels of every operation drawn, by stage and name
    this.when = []; // times of the operations that are one work with the lit one
    this.over = []; // stages that hold more than the limit
    this.isLarge = sum(laid.stages.map((row) => row.length)) >= MANY;
  }

  /** All marks of stage s, whose row begins at y. */
  row(s, y) {
    const { laid } = this;
    const placed = laid.stages[s];
    return (
      text(0, y + 15, `stage ${s}`) +
      this.idle(s, y) +
      this.thin(s, y) +
      placed.map((each, at) => (this.isThin(s, each, at) ? "" : this.operation(s, each, at, y))).join("") +
      (laid.model ? laid.model[s].map((each) => this.outline(s, each, y)).join("") : "") +
      this.stuck(s, y) +
      this.memory(s, y)
    );
  }

  idle(s, y) {
    const { x, idle } = this.laid;
    return IDLE.map((name, part) => {
      const own = idle.filter(([stage, , , each]) => stage === s && each === part);
      const looks = { fill: STRIPES, "data-idle": `${s}:${name}`, "data-tip": EMPTY };
      return own.length
        ? tag("path", {
            ...looks,
            d: boxes(
              own.map(([, from, to]) => [x(from), x(to)]),
              y,
            ),
          })
        : "";
    }).join("");
  }

  /** Whether an operation is drawn with all others of its kind: it is narrow, and nothing is to be seen of it alone. */
  isThin(s, [operation, start, end], at) {
    const { x, which, onPath } = this.laid;
    const { lit, chosen } = this.scene;
    const width = x(end) - x(start);
    if (this.isLarge ? holds(width, nameOf(operation)) : width >= THIN) return false;
    if (onPath.has(`${s},${at}`)) return false;
    if (chosen && String(chosen) === `${which},${s},${at}`) return false;
    return !(lit && s === lit[1] && isSameWork(operation, lit[2]));
  }

  /** The thin operations of a stage, a path for each kind, and what the pointer finds them by. */
  thin(s, y) {
    const { x, which, stages, reach } = this.laid;
    const { now, follow } = this.scene;
    const shapes = new Map();
    stages[s].forEach((each, at) => {
      if (!this.isThin(s, each, at)) return;
      const [operation, start, end] = each;
      const isFaint = start > now || (follow >= 0 && operation[1] !== follow);
      const kind = `${operation[0]}${operation[2] % 2}${isFaint ? " faint" : ""}`;
      if (!shapes.has(kind)) shapes.set(kind, []);
      shapes.get(kind).push([x(start), x(end)]);
      if (operation[1] === follow) this.spots[s + nameOf(operation)] = [x(start), x(end), y];
    });
    if (!shapes.size) return "";
    const drawn = [...shapes].map(([kind, spans]) => {
      const looks = { style: `fill:${fillOf(kind[0])}`, "data-thin": `${s}:${kind[0]}` };
      const foot = kind[1] === "1" ? tag("path", { style: "fill:#0005", d: boxes(spans, y + 14, 7) }) : "";
      return faint(kind.endsWith("faint"), tag("path", { ...looks, d: boxes(spans, y) }) + foot);
    });
    return tag(
      "g",
      { "data-row": `${which},${s}` },
      drawn.join("") + rect(x(0), y, x(reach) - x(0), BAR, { fill: "#0000" }),
    );
  }

  /** What every operation's mark has in common; a dotted line joins those that are one work in two schedules. */
  mark(s, at, operation, from, to, y) {
    const { scene, laid } = this;
    const { lit, chosen, cursor } = scene;
    const { which } = laid;
    const name = nameOf(operation);
    const inSame = lit && (which === lit[0] ? name === nameOf(lit[2]) : isSameWork(operation, lit[2]));
    const isTwin = Boolean(lit && s === lit[1] && inSame);
    this.spots[s + name] = [from, to, y];
    let svg = "";
    if (isTwin) {
      const { before } = cursor;
      if (before && before.which !== which) {
        const more = { "stroke-dasharray": "2 3", "data-cursor": 1 };
        svg = line(before.x, before.y + BAR, (from + to) / 2, y, "now", more);
      }
      cursor.before = { x: (from + to) / 2, y, which };
    }
    const spot = String([which, s, at]);
    return {
      svg,
      isTwin,
      isChosen: spot === String(chosen),
      hooks: { "data-op": `${s}:${name}`, "data-pick": spot, "data-lit": isTwin && 1 },
    };
  }

  operation(s, [operation, start, end], at, y) {
    const { x, onPath, unit } = this.laid;
    const { now, follow } = this.scene;
    const width = x(end) - x(start);
    const name = nameOf(operation);
    const isOnPath = onPath.has(`${s},${at}`);
    const { svg, isTwin, isChosen, hooks } = this.mark(s, at, operation, x(start), x(end), y);
    if (isTwin) this.when.push(`${unit(start)} to ${unit(end)}`);
    const style = styleOf(isChosen, isOnPath, isTwin, width);
    const looks = { style, ...hooks, "data-critical": isOnPath && 1 };
    const title = `stage ${s}, ${name}: ${short(start)} to ${short(end)}`;
    const words = holds(width, name) ? name : operation[0];
    let cell = bar(x(start), y, width, BAR, fillOf(operation[0]), words, looks, title);
    if (!holds(width, words)) cell += letter((x(start) + x(end)) / 2, y, operation[0]);
    if (operation[0] === "W") {
      const dots = { fill: "url(#lk-dots)", "pointer-events": "none" };
      cell += rect(x(start), y, width, 5, dots) + rect(x(start), y + 16, width, 5, dots);
    }
    if (operation[2] % 2) cell += rect(x(start), y + 14, width, 7, ODD);
    return svg + faint(start > now || (follow >= 0 && operation[1] !== follow), cell);
  }

  /** What the model expected of a measured operation. */
  outline(s, [operation, start, end], y) {
    const { x } = this.laid;
    const looks = { fill: "none", class: "rule", "stroke-dasharray": "3 2", "pointer-events": "none" };
    return rect(x(start), y - 2, x(end) - x(start), BAR + 4, { ...looks, "data-model": `${s}:${nameOf(operation)}` });
  }

  /** Operations that cannot run, behind those that can: red those that keep the others, which are dashed, from it. */
  stuck(s, y) {
    const { x, reach, stages } = this.laid;
    const placed = stages[s];
    const begin = Math.max(x(reach) + 4, x(placed.at(-1)?.[2] ?? 0));
    const own = this.laid.stuck.filter(([stage]) => stage === s);
    return own
      .map(([, operation], k) => {
        const from = begin + k * (STUCK + 2);
        const { svg, isChosen, hooks } = this.mark(s, placed.length + k, operation, from, from + STUCK, y);
        if (from + STUCK >= this.scene.width) return svg;
        const name = nameOf(operation);
        const isCulprit = this.laid.culprits.includes(s + name);
        const looks = {
          fill: "#0000",
          class: isCulprit ? "bad culprit" : "after",
          style: isChosen && "stroke-width:4",
          "data-stuck": `${s}:${name}`,
        };
        const cell = rect(from, y, STUCK, BAR, { ...looks, ...hooks });
        return svg + cell + text(from + STUCK / 2, y + 15, name, `middle small ${isCulprit ? "bad" : "grey"}`);
      })
      .join("");
  }

  /** The curve of what a stage holds, with its most and the limit. */
  memory(s, y) {
    const { laid, scene } = this;
    const { x, reach, model, stages } = laid;
    const { width, left, limit, top } = scene;
    const held = laid.held[s];
    const peak = peakOf(held);
    const isOver = limit && peak > limit;
    if (isOver) this.over.push(s);
    const level = (microbatches) => y + STRIP - (HIGH * microbatches) / top;
    const steps = held.map(([time, now]) => `H${x(time).toFixed(1)}V${level(now).toFixed(1)}`).join("");
    const d = `M${x(0)} ${level(0)}${steps}V${level(0)}`;
    const first = held.find(([, now]) => now === peak)?.[0] ?? 0;
    const dot = { cx: x(first), cy: level(peak), r: 2.5, fill: "currentColor", "data-most": s };
    let svg = text(0, y + STRIP - 4, "held", "small grey");
    svg += tag("path", { class: "rule", style: "fill:var(--soft)", d });
    const looks = `small end${isOver ? " bad" : ""}`;
    svg += text(width, y + STRIP - 16, "at most", looks);
    svg += text(width, y + STRIP - 4, `${isOver ? "✗ " : ""}${peak} held`, looks, { "data-peak": `${s}:${peak}` });
    svg += tag("circle", dot);
    if (model) {
      const ratio = ended([stages[s]]) / ended([model[s]]);
      svg += text(width, y + 15, `× ${ratio.toFixed(2)}`, "small end", { "data-ratio": s });
    }
    if (limit) {
      const red = { style: "stroke:var(--bad);stroke-width:1.5", "data-limit": s };
      svg += line(left, level(limit), x(reach), level(limit), "", red);
    }
    return svg;
  }
}

/** The letter of an operation that has room for no more. */
const letter = (x, y, kind) => text(x, y + 15, kind, "small middle", ink(fillOf(kind)));

/** Rectangles of these begins and ends as one path; a gap of less than a pixel stays to be seen. */
function boxes(spans, y, height = BAR) {
  const box = ([from, to]) => {
    const [left, right] = [from, Math.max(to - Math.min(1, (to - from) / 8), from + 0.3)].map((x) => x.toFixed(1));
    return `M${left} ${y}H${right}v${height}H${left}z`;
  };
  return spans.map(box).join("");
}

/** The edge of an operation: the chosen one's, the critical path's, thick if lit, none where it would be all to see. */
function styleOf(isChosen, isOnPath, isLit, width) {
  if (isChosen) return "stroke:currentColor;stroke-width:4";
  if (isOnPath) return `stroke:${hue("path")};stroke-width:3.5`;
  return isLit ? "stroke-width:3.5" : width < 7 && "stroke:none";
}
