import { axis, inkOn, line, percent, rect, seconds, tag, text } from "./figure.js";

const FILL = { F: "#0072b2", B: "#ddaa33", I: "#ddaa33", W: "#d55e00" };
const range = (n) => Array.from({ length: Math.max(n, 0) }, (_, k) => k);

/** "F0B0.1" as [[kind, microbatch, chunk], ...] */
export const parse = (words) => [...words.matchAll(/([FBIW])(\d+)(?:\.(\d+))?/g)].map(([, kind, m, c]) => [kind, +m, +(c ?? 0)]);
const name = ([kind, m, c]) => kind + m + (c ? "." + c : "");

export const FORMS = {
  gpipe: (s, p, m) => [..."FB"].flatMap((kind) => range(m).map((k) => [kind, k, 0])),
  one_f_one_b(s, p, m) {
    const warm = Math.min(p - 1 - s, m);
    return [...range(warm).map((k) => ["F", k, 0]), ...range(m).flatMap((k) => [...(k + warm < m ? [["F", k + warm, 0]] : []), ["B", k, 0]])];
  },
};

/** Place every operation as early as its order and what it needs allow: { stages: [[[op, start, end]]], stuck: [[stage, op]] }. */
export function place(stages, { tf = 1, tb = 2, tm = 0 } = {}) {
  const p = stages.length, v = 1 + Math.max(0, ...stages.flat().map((op) => op[2])), ends = {};
  const has = stages.map((ops) => new Set(ops.map(name)));
  const lasts = { F: tf / v, B: tb / v, I: tb / 2 / v, W: tb / 2 / v };
  const at = (part, kind, m) => {
    const s = part % p, c = Math.floor(part / p);
    return [s, kind === "B" && has[s].has(name(["I", m, c])) ? ["I", m, c] : [kind, m, c]];
  };
  const needs = (s, [kind, m, c]) => {
    const part = c * p + s;
    if (kind === "F") return part ? [at(part - 1, "F", m)] : [];
    if (kind === "W") return [[s, ["I", m, c]]];
    return [at(part, "F", m), ...(part < v * p - 1 ? [at(part + 1, "B", m)] : [])];
  };
  const placed = stages.map(() => []);
  for (let moved = true; moved; ) {
    moved = false;
    stages.forEach((ops, s) => {
      for (; placed[s].length < ops.length; moved = true) {
        const op = ops[placed[s].length], wanted = needs(s, op).map(([t, w]) => [t, ends[t + name(w)]]);
        if (wanted.some(([, end]) => end === undefined)) break;
        const start = Math.max(placed[s].at(-1)?.[2] ?? 0, ...wanted.map(([t, end]) => end + (t !== s ? tm : 0)));
        placed[s].push([op, start, start + lasts[op[0]]]);
        ends[s + name(op)] ??= start + lasts[op[0]];
      }
    });
  }
  return { stages: placed, stuck: stages.flatMap((ops, s) => ops.slice(placed[s].length).map((op) => [s, op])) };
}

export function bubbleOf(stages) {
  const all = stages.flat(), whole = Math.max(...all.map((o) => o[2])) - Math.min(...all.map((o) => o[1]));
  return 1 - all.reduce((sum, [, start, end]) => sum + end - start, 0) / (stages.length * whole);
}

/** [[time, microbatches held from then on]] of one stage. */
export function heldBy(ops, v) {
  const parts = new Set(ops.filter(([op]) => op[0] === "W").map(([op]) => op.slice(1) + "")), changes = new Map();
  const add = (time, by) => changes.set(time, (changes.get(time) ?? 0) + by / v);
  for (const [op, start, end] of ops)
    if (op[0] === "F") add(start, 1);
    else if (op[0] === "W" || !parts.has(op.slice(1) + "")) add(end, -1);
  let now = 0;
  return [...changes].sort((a, b) => a[0] - b[0]).map(([time, by]) => [time, +(now += by).toFixed(6)]);
}

export function scheduleExplorer(data) {
  const free = data.schedules.some((each) => each.form || each.lists), one = free && data.p.length * data.m.length > 1;
  const ask = ({ p = data.at[0], m = data.at[1], ...times }) => data.schedules.map((each) => {
    if (each.placed) return { ...each, stages: each.placed.map((row) => row.map(([op, start, end]) => [parse(op)[0], start, end])), stuck: [], faults: [] };
    const lists = each.form ? range(p).map((s) => FORMS[each.form](s, p, m)) : each.lists[`${p},${m}`]?.map(parse);
    const faults = each.faults?.[`${p},${m}`] ?? [];
    return { ...each, faults, ...(lists ? place(lists, times) : { stages: range(p).map(() => []), stuck: [] }) };
  });
  const moments = (shown) => [...new Set(shown.flatMap((each) => each.stages.flat().map((o) => +o[1].toPrecision(9))))].sort((a, b) => a - b);
  return {
    title: "Pipeline schedules", source: data.source, begin: 1e9,
    sliders: [
      ...(one ? [{ key: "p", label: "stages P", options: data.p, value: data.at[0], show: String }, { key: "m", label: "microbatches M", options: data.m, value: data.at[1], show: String }] : []),
      ...(free ? [["tf", "forward", 1, 0.25, 4], ["tb", "backward", 2, 0.25, 6], ["tm", "message", 0, 0, 2]].map(([key, label, value, min, max]) => ({ key, label, min, max, step: 0.25, value, show: String })) : []),
      { key: "follow", label: "follow microbatch", min: -1, max: Math.max(...data.m) - 1, value: -1, show: (k) => (k < 0 ? "none" : String(k)) },
    ],
    steps: (values) => moments(ask(values)).length,
    stepName: (values, step) => (step === moments(ask(values)).length ? "end" : `moment ${step}`),
    draw(values, step, width) {
      const shown = ask(values), times = moments(shown), now = times[step] ?? Infinity, left = 58, right = 62, wide = width - left - right;
      const longest = (measured) => Math.max(1e-12, ...shown.filter((each) => !each.placed === !measured).flatMap((each) => each.stages.flat().map((o) => o[2])));
      let y = 0, svg = '<defs><pattern id="lk-idle" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" style="stroke:var(--soft)"/></pattern></defs>';
      const numbers = [], table = [["schedule", "stage", "order", "most held"]], said = [];
      for (const each of shown) {
        const p = each.stages.length, v = 1 + Math.max(0, ...each.stages.flat().map(([op]) => op[2])), stuck = each.stuck.length, end = longest(each.placed) * (stuck ? 1.25 : 1), x = (time) => left + (time / end) * wide;
        const m = new Set(each.stages.flat().filter(([op]) => op[0] === "F").map(([op]) => op[1])).size, bubble = bubbleOf(each.stages), closed = (p - 1) / (v * m + p - 1);
        svg += text(0, y + 16, each.name, { class: "bold" }) + text(width, y + 16, stuck ? "cannot be carried out" : `bubble ${percent(bubble)}, formula (P−1)/(${v > 1 ? "VM" : "M"}+P−1): ${percent(closed)}`, { class: "end" + (stuck ? " bad" : ""), "data-bubble": stuck ? "" : bubble.toFixed(6) });
        y += 24;
        const where = {};
        each.stages.forEach((ops, s) => {
          const held = heldBy(ops, v), peak = Math.max(0, ...held.map((h) => h[1])), top = Math.max(m, 1);
          svg += text(0, y + 15, `stage ${s}`, { class: "small" }) + rect(left, y, (longest(each.placed) / end) * wide, 21, { fill: "url(#lk-idle)" });
          for (const [op, start, to] of ops) {
            const fill = FILL[op[0]], faint = start > now || (values.follow >= 0 && op[1] !== values.follow), w = x(to) - x(start);
            (where[op[1]] ??= []).push([start, to, y, x]);
            svg += tag("g", { opacity: faint ? 0.22 : undefined }, rect(x(start), y, w, 21, { fill, class: "edge", style: op[2] % 2 && "stroke-width:2", "data-op": `${s}:${name(op)}` }, `stage ${s}, ${name(op)}: ${+start.toPrecision(4)} to ${+to.toPrecision(4)}`) +
              (w > 6.5 * name(op).length + 1 ? text(x(start) + w / 2, y + 15, name(op), { class: "middle small", style: `fill:${inkOn(fill)}` }) : ""));
          }
          each.stuck.filter(([at]) => at === s).forEach(([, op], k) => {
            const from = Math.max(x(longest(each.placed)) + 4, x(ops.at(-1)?.[2] ?? 0)) + k * 24;
            if (from + 22 < width) svg += rect(from, y, 22, 21, { class: "bad", "data-stuck": `${s}:${name(op)}` }) + text(from + 11, y + 15, name(op), { class: "middle small bad" });
          });
          const level = (h) => y + 37 - (13 * h) / top;
          svg += tag("path", { class: "rule", style: "fill:var(--soft)", d: `M${x(0)} ${level(0)}` + held.map(([time, h]) => `H${x(time).toFixed(1)}V${level(h).toFixed(1)}`).join("") + `V${level(0)}` }) + text(width, y + 34, `most ${peak}`, { class: "small end", "data-peak": `${s}:${peak}` });
          table.push([each.name, s, ops.map(([op]) => name(op)).join(" "), peak]);
          y += 42;
        });
        if (values.follow >= 0 && where[values.follow]) {
          const path = where[values.follow].sort((a, b) => a[0] - b[0]);
          svg += path.slice(1).map(([start, , to], k) => line(path[k][3](path[k][1]), path[k][2] + 10, path[k][3](start), to + 10, { class: "now" })).join("");
        }
        if (now < Infinity) svg += line(x(now), y - 42 * p - 3, x(now), y, { class: "now" });
        svg += axis(left, y + 2, (longest(each.placed) / end) * wide, longest(each.placed), each.placed ? seconds : String);
        y += 28;
        for (const fault of each.faults.slice(0, 3)) svg += text(0, (y += 15), fault, { class: "bad" });
        y += 10;
        numbers.push([`${each.name}: bubble`, stuck ? "–" : percent(bubble), stuck > 0], [`difference from the formula`, stuck ? "–" : percent(bubble - closed)]);
        said.push(each.faults[0] ?? `${each.name}: bubble ${percent(bubble)}, at most ${Math.max(...each.stages.map((ops) => Math.max(0, ...heldBy(ops, v).map((h) => h[1]))))} microbatches held.`);
      }
      return { svg, height: y, numbers, say: said.join(" "), table, data: { faults: shown.flatMap((each) => each.faults).length } };
    },
  };
}
