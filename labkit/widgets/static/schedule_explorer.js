import { ARROW, axis, bar, choice, faint, line, most, percent, range, rect, seconds, slider, stripes, sum, tag, text, wrapped } from "./figure.js";

const FILL = { F: "#0072b2", B: "#ddaa33", I: "#ddaa33", W: "#d55e00" };
const IDLE = ["warm-up", "steady", "drain"];

/** "F0B0.1" as [[kind, microbatch, chunk], ...] */
export const parse = (words) => [...words.matchAll(/([FBIW])(\d+)(?:\.(\d+))?/g)].map(([, kind, m, c]) => [kind, +m, +(c ?? 0)]);
const name = ([kind, m, c]) => kind + m + (c ? "." + c : "");
const ended = (stages) => most([0, ...stages.flat().map((o) => o[2])]);

// What stage s of p does how many times with m microbatches: words of a kind and a chunk.
const PLANS = {
  gpipe: (s, p, m) => [[m, "F0"], [m, "B0"]],
  one_f_one_b: (s, p, m) => [[p - 1 - s, "F0"], [m, "F0B0"]],
  interleaved(s, p, m) {
    const wait = 3 * p - 2 - 2 * s, half = (turn) => Math.floor(turn / p) % 2;
    return range(wait + 2 * (m + p)).map((turn) => [1, "F" + half(turn) + (turn < wait ? "" : "B" + (1 - half(turn - wait)))]);
  },
  zb_h1: (s, p, m) => [[p - 1 - s, "F0"], [s, "F0I0"], [m, "F0I0W0"]],
  zb_v: (s, p, m) => [[2 * (p - s) - 1, "F0"], [s, "F1F0"], [p - s, "F1I1W1"], [most([m - p, p - 1]), "F0I0W0F1I1W1"], [s, "I0I1"], [p - s, "I0W0"], [s, "W1"], [s, "W0"]],
};

/** The order of a stage in one of these forms: each word stands for its kind's and chunk's next microbatch, if there is one. */
export function inForm(form, s, p, m) {
  const done = {};
  return PLANS[form](s, p, m).flatMap(([k, words]) => parse(words.repeat(k)).map(([kind, c]) => [kind, (done[kind + c] = (done[kind + c] ?? -1) + 1), c])).filter(([, k]) => k < m);
}

/** What must have ended before an operation of these lists, as a function of (stage, operation); vee: chunk 1 goes back from the last stage to the first. */
function needsOf(stages, vee) {
  const p = stages.length, v = 1 + most([0, ...stages.flat().map((op) => op[2])]), has = stages.map((ops) => new Set(ops.map(name)));
  const turned = (s, c) => (vee && c ? p - 1 - s : s);
  const at = (part, kind, m) => {
    const c = Math.floor(part / p), s = turned(part % p, c);
    return [s, kind === "B" && has[s].has(name(["I", m, c])) ? ["I", m, c] : [kind, m, c]];
  };
  const needs = (s, [kind, m, c]) => {
    const part = c * p + turned(s, c);
    if (kind === "F") return part ? [at(part - 1, "F", m)] : [];
    if (kind === "W") return [[s, ["I", m, c]]];
    return [at(part, "F", m), ...(part < v * p - 1 ? [at(part + 1, "B", m)] : [])];
  };
  return { needs, has, v };
}

/** Place every operation as early as its order and what it needs allow: { stages: [[[op, start, end]]], stuck: [[stage, op]], faults }. */
export function place(stages, { tf = 1, tb = 2, tm = 0, tw = 0.5, vee } = {}) {
  const { needs, has, v } = needsOf(stages, vee), ends = {}, placed = stages.map(() => []);
  const lasts = { F: tf / v, B: tb / v, I: (tb - tb * tw) / v, W: (tb * tw) / v };
  for (let moved = true; moved; ) {
    moved = false;
    stages.forEach((ops, s) => {
      for (; placed[s].length < ops.length; moved = true) {
        const op = ops[placed[s].length], wanted = needs(s, op).map(([t, w]) => [t, ends[t + name(w)]]);
        if (wanted.some(([, end]) => end === undefined)) break;
        const start = most([placed[s].at(-1)?.[2] ?? 0, ...wanted.map(([t, end]) => end + (t !== s ? tm : 0))]);
        placed[s].push([op, start, start + lasts[op[0]]]);
        ends[s + name(op)] ??= start + lasts[op[0]];
      }
    });
  }
  // What is wrong with the order, in sentences; the same as Python's.
  const faults = [], waits = [], on = {}, blocked = [];
  stages.forEach((ops, s) => {
    const op = ops[placed[s].length];
    if (!op) return;
    const key = ([t, w]) => 2 * (t !== s) + has[t].has(name(w));
    const [t, w] = needs(s, op).filter(([t, w]) => ends[t + name(w)] === undefined).sort((a, b) => key(a) - key(b))[0], here = `Stage ${s} stands at ${name(op)}`;
    blocked.push([s, op, t, w]);
    if (!has[t].has(name(w))) faults.push(here + (t === s ? "" : `, needs ${name(w)} of stage ${t}`) + `, but stage ${t} has no ${name(w)}.`);
    else if (t === s) faults.push(`Stage ${s}: ${name(op)} stands before ${name(w)}.`);
    else waits.push(`${here} and waits for ${name(w)} of stage ${(on[s] = t)}, which stands at ${name(stages[t][placed[t].length])}.`);
  });
  for (let s of Object.keys(on).map(Number)) {
    for (const _ of stages) s = on[s];
    if (s === undefined) continue;
    const circle = [s];
    for (let t = on[s]; t !== s; t = on[t]) circle.push(t);
    waits.unshift(`Deadlock: stages ${circle.sort((a, b) => a - b).join(" and ")} wait for each other.`);
    break;
  }
  faults.push(...waits);
  stages.forEach((ops, s) => {
    const names = ops.map(name), without = ops.filter(([kind, ...of]) => kind === "F" && ![..."BI"].some((k) => has[s].has(name([k, ...of])))).sort((a, b) => a[1] - b[1] || a[2] - b[2]);
    names.forEach((each, k) => names.indexOf(each) < k && faults.push(`Stage ${s}: ${each} stands in the list twice.`));
    if (without.length) faults.push(`Stage ${s}: ${name(without[0])} has no backward.`);
  });
  return { stages: placed, stuck: stages.flatMap((ops, s) => ops.slice(placed[s].length).map((op) => [s, op])), faults, blocked };
}

export function bubbleOf(stages) {
  const all = stages.flat(), whole = ended(stages) - Math.min(...all.map((o) => o[1]));
  return 1 - sum(all.map(([, start, end]) => end - start)) / (stages.length * whole);
}

/** [[stage, from, to, part of IDLE]] of the time in which a stage runs nothing: before its first backward, after its last forward, between. */
export function idleOf(stages) {
  const end = ended(stages);
  return stages.flatMap((ops, s) => {
    const first = ops.find(([op]) => op[0] !== "F")?.[1] ?? end, last = most([0, ...ops.filter(([op]) => op[0] === "F").map((o) => o[2])]);
    return [...ops, [, end]].flatMap(([, to], k) => {
      const from = ops[k - 1]?.[2] ?? 0;
      return to > from + 1e-12 * end ? [[s, from, to, to <= first ? 0 : from >= last ? 2 : 1]] : [];
    });
  });
}

/** The operations, last first, that no other could have waited less for: [[stage, position], ...]. */
export function criticalPath(stages, tm = 0, vee) {
  const { needs } = needsOf(stages.map((ops) => ops.map(([op]) => op)), vee), path = [];
  const spot = (s, op) => [s, stages[s].findIndex(([each]) => name(each) === name(op))];
  const endOf = ([s, k]) => stages[s][k][2];
  let at = stages.flatMap((ops, s) => (ops.length ? [[s, ops.length - 1]] : [])).sort((a, b) => endOf(b) - endOf(a))[0];
  while (at && path.length < 5000) {
    path.push(at);
    const [s, k] = at, before = [...(k ? [[s, k - 1]] : []), ...needs(s, stages[s][k][0]).map(([t, w]) => spot(t, w))].filter(([, k]) => k >= 0);
    const arrives = (one) => endOf(one) + (one[0] !== s ? tm : 0);
    at = before.reduce((a, b) => (!a || arrives(b) > arrives(a) + 1e-9 ? b : a), null);
  }
  return path;
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

/** Whether two operations are one piece of work in two schedules: a backward is also its parts, a microbatch all its chunks. */
const same = ([a, m], [b, n]) => m === n && (a === b || (a !== "F" && b !== "F" && (a === "B" || b === "B")));

export function scheduleExplorer(data) {
  const free = data.schedules.some((each) => each.form || each.lists), one = free && data.p.length * data.m.length > 1, edits = {}, forms = Object.keys(PLANS).filter((form) => !data.schedules.some((each) => form === each.form));
  let critical = false, chosen, over;
  const sized = ({ p = data.at[0], m = data.at[1] }) => `${p},${m}`, whose = (each, values) => each.name + sized(values);
  const ask = (values) => [...data.schedules, ...(forms.includes(values.and) ? [{ name: values.and, form: values.and }] : [])].map((each) => {
    const key = sized(values), [p, m] = key.split(",").map(Number), edited = edits[whose(each, values)], cut = (rows) => rows.map((row) => row.map(([op, start, end]) => [parse(op)[0], start, end]));
    if (each.placed) {
      const stages = cut(each.placed);
      return { ...each, stages, lists: stages.map((ops) => ops.map((o) => o[0])), model: cut(each.model), stuck: [], faults: [], blocked: [] };
    }
    const lists = edited ?? (each.form ? range(p).map((s) => inForm(each.form, s, p, m)) : each.lists[key]?.map(parse)), told = each.faults?.[key] ?? [];
    const vee = each.form === "zb_v", found = place(lists ?? range(p).map(() => []), { ...values, vee });
    return { ...each, vee, lists, ...found, edited, faults: edited ? found.faults : [...told, ...found.faults] };
  });
  const moments = (shown) => [...new Set(shown.flatMap((each) => each.stages.flat().map((o) => +o[1].toPrecision(9))))].sort((a, b) => a - b);
  const order = (values, each, s, ops) => (edits[whose(each, values)] = each.lists.map((list, t) => (t === s ? ops : list)));
  // By keys: the chosen operation, as [schedule, stage, position], becomes the next one, or changes places with it.
  const step = (by, swap) => (values) => {
    const shown = ask(values);
    if (swap && (!chosen || shown[chosen[0]].placed)) return;
    const every = shown.flatMap(({ lists = [] }, k) => lists.flatMap((ops, s) => ops.map((_, at) => [k, s, at])));
    const now = chosen ? every.findIndex((each) => each + "" === chosen + "") : by > 0 ? -1 : every.length, to = every[now + by] ?? chosen;
    if (swap && to[1] === chosen[1] && to[0] === chosen[0]) {
      const [k, s, at] = chosen, ops = [...shown[k].lists[s]];
      [ops[at], ops[to[2]]] = [ops[to[2]], ops[at]];
      order(values, shown[k], s, ops);
    }
    if (!swap || to?.[1] === chosen?.[1]) chosen = to;
  };
  return {
    title: "Pipeline schedules", source: data.source, begin: 1e9, drags: true,
    sliders: [
      ...(one ? [choice("p", "stages P", data.at[0], data.p), choice("m", "microbatches M", data.at[1], data.m), choice("and", "compare with", "–", ["–", ...forms])] : []),
      ...(free ? [slider("tf", "forward", 1, 0.25, 4, String, 0.25), slider("tb", "backward", 2, 0.25, 6, String, 0.25), slider("tw", "of it W", 0.5, 0, 1, percent, 0.05), slider("tm", "message", 0, 0, 2, String, 0.25)] : []),
      slider("limit", "memory for microbatches", data.limit, 0, most([...data.m, data.limit]), (k) => k || "any"),
      slider("follow", "follow microbatch", -1, -1, most(data.m) - 1, (k) => (k < 0 ? "none" : k)),
    ],
    buttons: { path: "Critical path", ...(free && { undo: "Undo edits" }) },
    keys: { c: "path", u: "undo", ",": "before", ".": "after", "<": "earlier", ">": "later" },
    help: `c: critical path; , . choose an operation. ${free ? "Drag it, or move it with < >; u undoes." : ""}`,
    acts: {
      path: () => void (critical = !critical),
      undo: () => Object.keys(edits).forEach((key) => delete edits[key]),
      before: step(-1), after: step(1), earlier: step(-1, true), later: step(1, true),
    },
    hover(mark) {
      const before = over;
      over = mark.closest("[data-pick]")?.dataset.pick.split(",").map(Number);
      return over + "" !== before + "";
    },
    pick(mark, far, values) {
      const [k, s, at] = mark.dataset.pick.split(",").map(Number), each = ask(values)[k], row = [...mark.ownerSVGElement.querySelectorAll(`[data-pick^="${k},${s},"]`)];
      const middle = (one) => +one.getAttribute("x") + one.getAttribute("width") / 2 + (one === mark ? far : 0), places = row.sort((a, b) => middle(a) - middle(b)).map((one) => +one.dataset.pick.split(",")[2]);
      if (far && !each.placed) order(values, each, s, places.map((place) => each.lists[s][place]));
      chosen = [k, s, each.placed ? at : places.indexOf(at)];
    },
    steps: (values) => moments(ask(values)).length,
    stepName: (values, step) => (step === moments(ask(values)).length ? "end" : `moment ${step}`),
    draw(values, step, width) {
      const shown = ask(values), times = moments(shown), now = times[step] ?? Infinity, left = 58, right = 62, wide = width - left - right, { limit } = values;
      const longest = (measured) => most([1e-12, ...shown.filter((each) => !each.placed === !measured).map((each) => ended([...each.stages, ...(each.model ?? [])]))]);
      const chunks = (each) => 1 + most([0, ...each.stages.flat().map(([op]) => op[2])]), peakOf = (held) => most([0, ...held.map((h) => h[1])]), short = (t) => +t.toPrecision(4);
      const peaks = shown.map((each) => each.stages.map((ops) => peakOf(heldBy(ops, chunks(each))))), top = most([1, limit, ...peaks.flat()]);
      // The operation under the pointer or chosen, as [schedule, stage, operation], and its microbatch's way.
      const [lit, picked] = [over ?? chosen, chosen].map(([k, s, at] = []) => shown[k]?.lists?.[s]?.[at] && [k, s, shown[k].lists[s][at]]), follow = over && lit ? lit[2][1] : values.follow;
      let y = 0, svg = ARROW + range(3).map((k) => stripes(k)).join(""), before;
      const numbers = [], table = [["schedule", "stage", "order", "most held"]], said = [], when = [];
      shown.forEach((each, which) => {
        const { stages, model } = each, p = stages.length, v = chunks(each), stuck = each.stuck.length, reach = longest(each.placed), end = reach * (stuck ? 1.25 : 1), x = (time) => left + (time / end) * wide, unit = each.placed ? seconds : short;
        const m = new Set(stages.flat().filter(([op]) => op[0] === "F").map(([op]) => op[1])).size, bubble = bubbleOf(stages), k = v * (stages.flat().some(([op]) => op[0] === "W") ? 3 : 1), closed = (p - 1) / (k * m + p - 1);
        svg += text(0, y + 16, each.name + (each.edited ? ", edited" : ""), "bold") + text(width, (y += width < 400 ? 15 : 0) + 16, stuck ? "cannot be carried out" : `bubble ${percent(bubble)}, formula (P−1)/(${k > 1 ? k : ""}M+P−1): ${percent(closed)}`, "end" + (stuck ? " bad" : ""), { "data-bubble": stuck ? "" : bubble.toFixed(6) });
        y += 24;
        const idle = stuck ? [] : idleOf(stages), path = critical && !stuck ? criticalPath(stages, each.placed ? 0 : values.tm, each.vee) : [], spots = {}, much = [], { needs } = needsOf(each.lists ?? [], each.vee);
        stages.forEach((ops, s) => {
          const held = heldBy(ops, v), peak = peakOf(held), tight = limit && peak > limit, level = (h) => y + 37 - (13 * h) / top;
          // A cell's marks; it remembers where it stands.
          const marked = (at, op, from, to) => {
            const twin = lit && s === lit[1] && (which === lit[0] ? name(op) === name(lit[2]) : same(op, lit[2]));
            spots[s + name(op)] = [from, to, y];
            if (twin) {
              if (before && before[3] !== which) svg += line((before[0] + before[1]) / 2, before[2] + 21, (from + to) / 2, y, "now", { "stroke-dasharray": "2 3", "data-cursor": 1 });
              before = [from, to, y, which];
            }
            return [twin, { "data-op": `${s}:${name(op)}`, "data-pick": [which, s, at] + "", "data-lit": twin && 1 }, [which, s, at] + "" === chosen + ""];
          };
          if (tight) much.push(s);
          svg += text(0, y + 15, `stage ${s}`) + idle.filter(([t]) => t === s).map(([, from, to, part]) => rect(x(from), y, x(to) - x(from), 21, { fill: `url(#lk-idle${part})`, "data-idle": `${s}:${IDLE[part]}` }, `${IDLE[part]} bubble`)).join("");
          ops.forEach(([op, start, to], at) => {
            const fill = FILL[op[0]], w = x(to) - x(start), onPath = path.some(([t, k]) => t === s && k === at), [twin, hooks, isChosen] = marked(at, op, x(start), x(to));
            if (twin) (when[which] ??= []).push(`${unit(start)} to ${unit(to)}`);
            svg += faint(start > now || (follow >= 0 && op[1] !== follow), bar(x(start), y, w, 21, fill, w < 6.5 * name(op).length + 4 ? op[0] : name(op), { style: isChosen ? "stroke:var(--bad);stroke-width:4" : onPath || twin ? "stroke-width:3.5" : w < 7 && "stroke:none", ...hooks, "data-critical": onPath && 1 }, `stage ${s}, ${name(op)}: ${short(start)} to ${short(to)}`) + (op[2] % 2 ? rect(x(start), y + 14, w, 7, { fill: "#0005", "pointer-events": "none" }) : ""));
          });
          model?.[s].forEach(([op, start, to]) => (svg += rect(x(start), y - 2, x(to) - x(start), 25, { fill: "none", class: "rule", "stroke-dasharray": "3 2", "pointer-events": "none", "data-model": `${s}:${name(op)}` })));
          each.stuck.filter(([at]) => at === s).forEach(([, op], k) => {
            const from = Math.max(x(reach) + 4, x(ops.at(-1)?.[2] ?? 0)) + k * 24, [, hooks, isChosen] = marked(ops.length + k, op, from, from + 22);
            if (from + 22 < width) svg += rect(from, y, 22, 21, { fill: "#0000", class: "bad", style: isChosen && "stroke-width:4", "data-stuck": `${s}:${name(op)}`, ...hooks }) + text(from + 11, y + 15, name(op), "middle small bad");
          });
          svg += tag("path", { class: "rule", style: "fill:var(--soft)", d: `M${x(0)} ${level(0)}` + held.map(([time, h]) => `H${x(time).toFixed(1)}V${level(h).toFixed(1)}`).join("") + `V${level(0)}` }) + text(width, y + 34, `most ${peak}`, "small end" + (tight ? " bad" : ""), { "data-peak": `${s}:${peak}` }) + tag("circle", { cx: x(held.find((h) => h[1] === peak)?.[0] ?? 0), cy: level(peak), r: 2.5, fill: "currentColor", "data-most": s });
          if (model) svg += text(width, y + 15, "× " + (ended([ops]) / ended([model[s]])).toFixed(2), "small end", { "data-ratio": s });
          if (limit) svg += line(left, level(limit), x(reach), level(limit), "", { style: "stroke:var(--bad);stroke-width:1.5", "data-limit": s });
          table.push([each.name, s, ops.map(([op]) => name(op)).join(" "), peak]);
          y += 42;
        });
        const link = (a, b, more) => (a && b ? line(a[1], a[2] + 10, b[0], b[2] + 10, "now", { "marker-end": "url(#lk-arrow)", ...more }) : ""), spot = (s, op) => spots[s + name(op)], way = path.map(([s, k]) => spot(s, stages[s][k][0]));
        stages.forEach((ops, s) => ops.forEach(([op]) => op[1] === follow && needs(s, op).forEach(([t, w]) => (svg += t === s ? "" : link(spot(t, w), spot(s, op), { "data-message": `${t}:${name(w)}` })))));
        svg += way.slice(1).map((from, k) => link(from, way[k])).join("") + each.blocked.map(([s, op, t, w]) => {
          const [a, b] = [spot(t, w), spot(s, op)].map((at) => at && [(at[0] + at[1]) / 2, at[2] + 21]);
          return a && b ? tag("path", { class: "bad", d: `M${a}Q${(a[0] + b[0]) / 2} ${Math.max(a[1], b[1]) + 24} ${b}`, "marker-end": "url(#lk-arrow)", "data-needs": `${s}:${name(op)}<${t}:${name(w)}` }) : "";
        }).join("");
        if (now < Infinity) svg += line(x(now), y - 42 * p - 3, x(now), y, "now");
        svg += axis(left, y + 2, x(reach) - left, reach, each.placed ? seconds : String);
        y += 28;
        for (const fault of each.faults.slice(0, 3)) {
          const [words, more] = wrapped(fault, y + 15, 0.92 * width, "bad");
          svg += words;
          y += more + 1;
        }
        y += 10;
        const whole = ended(stages), share = (part) => percent(sum(idle.filter((i) => i[3] === part).map(([, from, to]) => to - from)) / (p * whole)), first = shown[0];
        if (which) numbers.push([]);
        numbers.push([`${each.name}: bubble`, stuck ? "–" : percent(bubble), stuck > 0], [`difference from the formula`, stuck ? "–" : percent(bubble - closed)]);
        if (!stuck) {
          numbers.push(["warm-up, steady, drain", range(3).map(share).join(", ")], [`${each.name}: time`, unit(whole) + (which && !first.placed === !each.placed && !first.stuck.length ? `, ${percent(whole / ended(first.stages))} of ${first.name}` : "")]);
        }
        if (path.length) {
          const busy = sum(path.map(([s, k]) => stages[s][k][2] - stages[s][k][1])) / whole;
          numbers.push(["critical path", `${path.length} operations, ${percent(busy)} compute`]);
        }
        if (model) numbers.push(["measured / predicted", (whole / ended(model)).toFixed(2)]);
        if (limit) numbers.push([`${each.name}: fits into memory`, much.length ? `✗ stage ${much.join(", ")}` : "✓", much.length]);
        said.push((each.faults[0] ?? `${each.name}${each.edited ? ", edited, can be carried out" : ""}: bubble ${percent(bubble)}, at most ${most(peaks[which])} microbatches held.`) + (limit && much.length ? ` ${each.name}: more than the memory's ${limit} on stage ${much.join(", ")}.` : ""));
      });
      const [, s, op] = picked ?? lit ?? [], spans = when.flatMap((each, k) => `${shown[k].name} from ${each.join(" and ")}`);
      if (op) said.push(`${picked ? "Chosen: " : ""}${name(op)} of stage ${s}${spans[0] ? ": " : ""}${spans.join(", ")}.`);
      const [words, more] = wrapped("F: forward; B: backward, split into I and W. Stripes: bubble; / warm-up, | steady, \\ drain. Grey curve: activations held, dot: most; red line: memory. Dark foot: odd chunk.", y + 4, width);
      return { svg: svg + words, height: y + more, numbers, say: said.join(" "), table, data: { faults: shown.flatMap((each) => each.faults).length, chosen: chosen ?? "" } };
    },
  };
}
