import { axis, bar, bytes, choice, collective, faint, least, line, linkSliders, most, percent, plot, powers, range, rect, seconds, slider, stripes, strokeOf, sum, text } from "./figure.js";

const COLOURS = ["#0072b2", "#ddaa33", "#56b4e9", "#d55e00", "#332288", "#bbbbbb"];
const COMPUTE = { F: ["forward", "#8f8f8f"], S: ["search", "#ffffff"], B: ["backward", "#c4c4c4"], O: ["optimizer", "#e6e6e6"] };
const MEMORY = 1.6e12; // bytes per second, of an A100
const GRAPHS = ["default", "find_unused_parameters", "static_graph"];

/** Buckets in the order they are sent: from the last parameter to the first or in a given order, each filled up to the cap. */
export function bucketPlan(sizes, cap, first, order = range(sizes.length).reverse()) {
  const buckets = [];
  let filled = 0;
  for (const at of order) {
    if (!buckets.length || filled + sizes[at] > ((buckets.length === 1 && first) || cap)) {
      buckets.push([]);
      filled = 0;
    }
    filled += sizes[at];
    buckets.at(-1).push(at);
  }
  return buckets;
}

/** The buckets of one step of torch's DDP; an empty one says what was used (labkit/widgets/buckets.py says why). */
export function ddpPlan(sizes, cap, first, used, graph, step) {
  const fixed = graph === GRAPHS[2];
  if (graph === GRAPHS[1]) return [...bucketPlan(sizes, cap, first), []];
  if (step > 1 + fixed) return bucketPlan(sizes, cap, first, [...used].reverse());
  return [...(fixed && step === 1 ? [[]] : []), range(sizes.length)];
}

/** For each bucket { bytes, ready, all, start, end } from backward's begin on: ready here and on the slowest rank, sent one at a time. */
export function bucketTimes(sizes, plan, { backward, skew = 0, used = range(sizes.length), hook = {}, ...link }) {
  const total = sum(sizes), done = [], of = (bucket, list) => sum(bucket.map((at) => list[at]));
  let before = 0, free = 0;
  for (const at of [...used].reverse()) done[at] = ((before += sizes[at]) / total) * backward;
  return plan.map((bucket) => {
    const b = bucket.length ? of(bucket, hook.bytes ?? sizes) : 4 * sizes.length, ready = bucket.length ? most(bucket.map((at) => done[at])) : backward, start = most([ready + skew, free]);
    free = start + ((hook.passes ?? 0) * of(bucket, sizes)) / MEMORY + collective(b, link, hook.gathered && bucket.length);
    return { bytes: b, ready, all: ready + skew, start, end: free };
  });
}

/** What a hook loses of gradients: norm of the error over norm of the mean, of parameters together. */
export const lost = (errors, norms, bucket) => Math.hypot(...bucket.map((at) => errors[at] * norms[at])) / (Math.hypot(...bucket.map((at) => norms[at])) || 1);

export function bucketExplorer(data) {
  const { sizes, caps, norms } = data, n = sizes.length, total = sum(sizes), mib = (v) => (v ? v < 1e15 ? `${+(v / 2 ** 20).toPrecision(3)} MiB` : "one bucket" : "as the others"), given = (key, options) => options.map((v) => [{ [key]: v }, key === "turn" ? `step ${v}` : key === "cap" ? mib(v) : v]);
  const stacks = { nothing: [], caps: given("cap", data.compare.map((cap) => cap ?? 1e18)), hooks: given("hook", Object.keys(data.hooks)), ...(!data.plans && { "DDP's graph": given("graph", GRAPHS), "DDP's steps": given("turn", [1, 2, 3]) }) };
  const part = (share) => `${+(100 * share).toPrecision(2)} %`;
  let lit;
  /** One step: its buckets and times for these positions of the sliders. */
  const stepOf = (chosen) => {
    const values = { first: 0, graph: data.graph, turn: data.turn, registered: "as used", ...chosen }, { backward, cap, graph } = values;
    const used = data.used ?? (values.registered === "as used" ? range(n) : range(n).reverse()), hook = data.hooks[values.hook], skew = values.late * backward, search = graph === GRAPHS[1] && !data.plans ? data.search : 0;
    const plan = data.plans ? data.plans[caps.indexOf(cap)] ?? [range(n)] : ddpPlan(sizes, cap, values.first, used, graph, values.turn), times = bucketTimes(sizes, plan, { ...values, used, hook, skew });
    const [forward, optimizer] = [data.forward, data.optimizer].map((part) => (part * backward) / data.backward), begin = forward + search;
    const comm = sum(times.map((each) => each.end - each.start)), compute = begin + backward + optimizer;
    let over = backward, exposed = 0, waits = 0;
    times.forEach((each, k) => {
      each.name = (plan[k].length ? `bucket ${k}: ` : "which were used: ") + bytes(each.bytes);
      const from = most([over, each.start]);
      waits += from - over;
      exposed += (over = most([from, each.end])) - from;
    });
    const last = most([over, backward + skew]);
    return { plan, times, used, hook, skew, search, forward, backward, begin, optimizer, last, comm, compute, whole: begin + last + optimizer, exposed, waits, alone: compute + skew + comm };
  };
  return {
    title: "Buckets", source: data.source, begin: 1e9, stepLabel: "bucket",
    sliders: [
      choice("cap", "bucket cap", data.cap, caps, mib),
      ...(data.plans ? [] : [choice("first", "first bucket", data.first, [...new Set([0, 2 ** 17, 2 ** 20, data.first])].sort((a, b) => a - b), mib), choice("graph", "DDP's graph", data.graph, GRAPHS), slider("turn", "step", data.turn, 1, 3, (v) => v + (v > 2 ? " and later" : ""))]),
      ...(data.plans || data.used ? [] : [choice("registered", "registered", "as used", ["as used", "backwards"])]),
      choice("hook", "hook", data.hook, Object.keys(data.hooks)), choice("compare", "stack", data.compared, Object.keys(stacks)), powers("backward", "backward", data.backward, 1e-4, 10, seconds),
      slider("late", "slowest rank is late by", data.late, 0, 1, (v) => percent(v) + " of backward", 0.05), slider("ranks", "ranks", data.ranks, 2, 64),
      ...linkSliders(data),
    ],
    steps: (values) => stepOf(values).plan.length,
    stepName: (values, step) => `${step} of ${stepOf(values).plan.length} sent`,
    hover(mark) {
      const was = lit;
      lit = mark.closest("[data-link]")?.dataset.link;
      return was !== lit;
    },
    draw(values, step, width) {
      const now = stepOf(values), { plan, times, comm, exposed, whole, skew, hook, alone } = now, low = most([now.compute, comm]);
      const stacked = stacks[values.compare].map(([change, name]) => [name, stepOf({ ...values, ...change })]), run = data.run ?? [];
      const left = 74, wide = width - left - 12, end = most([whole, alone, ...stacked.map(([, each]) => each.whole), ...run.flatMap(([, compute, sent]) => [...compute.map((each) => each[2]), ...sent.map((each) => each[4])])]), x = (time) => left + (time / end) * wide, fill = (k) => COLOURS[k % 6];
      const numbers = [["buckets", plan.filter((bucket) => bucket.length).length], ["bytes", bytes(sum(times.map((t) => t.bytes)))], ["compute", seconds(now.compute)], ["communication", seconds(comm)], ["exposed", seconds(exposed)], ["overlapped", percent(comm && 1 - exposed / comm)], ["skew", seconds(skew)], ["waits for the slowest rank", seconds(now.waits)], ["step", seconds(whole)], ["no overlap", seconds(alone)], ["at least max(compute, comm)", seconds(low)]];
      let y = 20, svg = stripes(1) + text(0, 12, "as backward makes them; width: bytes; colour: bucket", "small grey") + text(0, 35, "gradients");
      const faded = (k, name, main) => (main && k >= step) || (lit && lit !== name + k), told = (each, begin = 0) => `${each.name}, ready ${seconds(begin + each.ready)}, sent ${seconds(begin + each.start)} to ${seconds(begin + each.end)}`;
      /** The gradients of a step, each in its bucket's colour. */
      const strip = ({ plan, times, used, begin, backward }, name, tall) => {
        const of = Object.fromEntries(plan.flatMap((bucket, k) => bucket.map((at) => [at, k])));
        let before = 0;
        for (const at of [...used].reverse()) {
          const [from, to] = [before, (before += sizes[at])].map((s) => x(begin + (s / total) * backward)), k = of[at], none = k === undefined;
          svg += rect(from, y, to - from, tall, { fill: none ? "none" : fill(k), class: none ? "bad" : "thin", opacity: faded(k, name, !name) && 0.25, "data-parameter": at, "data-bucket": k, "data-link": name + k }, `parameter ${at}: ${bytes(sizes[at])}, ${none ? "in no bucket" : told(times[k], begin)}`) + line(to, y + tall, to, y + tall + 8, "soft");
        }
        y += tall + 12;
      };
      // A rank: what it computes [letter, start, end], and its buckets [bytes, ready here, ready everywhere, start, end].
      const row = (name, compute, sent, kind, link = kind) => {
        const own = most(compute.map(([word, , to]) => (word === "O" ? 0 : to)));
        svg += text(0, y + 15, name) + compute.map(([word, from, to]) => to > from ? bar(x(from), y, x(to) - x(from), 21, COMPUTE[word][1], x(to) - x(from) > 70 ? COMPUTE[word][0] : word, { "data-compute": `${kind}:${word}` }, `${COMPUTE[word][0]}: ${seconds(from)} to ${seconds(to)}`) : "").join("");
        sent.forEach(([size, ready, all, start, to, name], k) => {
          const w = x(to) - x(start), mine = most([ready, sent[k - 1]?.[4] ?? 0]), late = all > mine && start > mine;
          svg += faint(faded(k, link, !link), line(x(ready), y + 21, x(ready), y + 28) + (start > ready ? line(x(ready), y + 23 + (k % 2) * 3, x(start), y + 23 + (k % 2) * 3) : "") + (late ? rect(x(mine), y + 28, x(start) - x(mine), 21, { fill: "url(#lk-idle1)", "data-late": k }, "waits for the slowest rank") : "") +
            bar(x(start), y + 28, w, 21, fill(k), k, {}, told({ name: name ?? `bucket ${k}: ${bytes(size)}`, ready, start, end: to })) +
            (to > own ? line(x(most([start, own])), y + 27, x(to), y + 27, "", { style: "stroke:currentColor;stroke-width:4", "data-exposed": k }) : ""), { "data-sent": k, "data-row": kind, "data-link": link + k });
        });
        svg += text(0, y + 43, "all-reduce", "small grey") + line(x(own), y - 3, x(own), y + 52, "now", { "stroke-dasharray": "3 3" });
        y += 58;
      };
      const model = ({ forward, begin, backward, last, optimizer, times, skew }, slowest) => {
        const off = slowest ? skew : 0, from = begin + off, over = begin + last;
        return [[["F", 0, forward + off], ["S", forward + off, from], ["B", from, from + backward], ["O", over, over + optimizer]], times.map((t) => [t.bytes, from + t.ready, begin + t.all, begin + t.start, begin + t.end, t.name])];
      };
      strip(now, "", 24);
      row("rank 0", ...model(now), "model", "");
      if (skew) row("slowest", ...model(now, true), "slowest", "");
      const head = (words) => (svg += text(left, (y += 12), words, "bold"), (y += 6));
      for (const [name, each] of stacked) {
        head(`${name}: ${seconds(each.whole)}, ${seconds(each.exposed)} exposed`);
        numbers.push([name, seconds(each.whole)]);
        strip(each, name, 10);
        row("rank 0", ...model(each), `stacked ${name}`, name);
      }
      let heading;
      for (const [label, ...rest] of run) {
        const [rank, when] = label.split(", ");
        if (heading !== (heading = "this run" + (when ? ", " + when : ""))) head(heading);
        row(rank, ...rest, "run", "run");
      }
      svg += axis(left, y, wide, end, seconds);
      y += 28;
      [["at least", low], ["actual", whole], ["no overlap", alone]].forEach(([name, t], k) => (svg += text(0, y + 11, name) + bar(left, y, x(t) - left, 14, ["#e6e6e6", "#8f8f8f", "#c4c4c4"][k], seconds(t), { "data-bar": name }), (y += 16)));
      y += 30;
      if (norms && hook.errors) {
        const points = times.map((t, k) => [now.begin + t.end, lost(hook.errors, norms, plan[k])]).filter((_, k) => plan[k].length);
        svg += plot(left, y, wide, 60, `error of a bucket, |sent − mean| / |mean|, ${data.measuredOn}`, [[points, strokeOf(0), { "data-error": values.hook }], ...points.map((point) => [[], strokeOf(0), {}, point])], [0, end, seconds], [1e-5, 1, part, true]);
        y += 112;
      }
      const curve = caps.map((cap) => stepOf({ ...values, cap }).whole), top = most(curve), best = curve.indexOf(least(curve)), at = caps.indexOf(values.cap);
      svg += plot(left, y, wide, 90, "step time for each cap in MiB; ◯ this one", [[curve.map((t, k) => [k, t]), strokeOf(0), {}, [at, curve[at]]]], [0, caps.length - 1, () => ""], [0, top, seconds]) + caps.map((each, k) => text(left + (k / (caps.length - 1)) * wide, y + 106, +(each / 2 ** 20).toPrecision(2), "small middle" + (k === best ? " bold" : ""), { "data-cap": each })).join("");
      if (hook.passes) numbers.push([`compressing, if ${hook.passes} passes over memory at 1.6 TB/s`, seconds((hook.passes * total) / MEMORY)]);
      if (norms) for (const [name, { errors }] of Object.entries(data.hooks)) if (errors) numbers.push([`error of ${name}`, part(lost(errors, norms, range(n)))]);
      for (const [label, value] of Object.entries(data.measured ?? {})) numbers.push([`this run: ${label}`, typeof value === "string" ? value : seconds(value)]);
      const wrong = data.faults?.[at];
      const say = wrong || (step && step < plan.length ? told(times[step - 1], now.begin) : `${plan.length} all-reduces: ${seconds(exposed)} of ${seconds(comm)} communication are exposed; the step takes ${seconds(whole)}. Best of these caps: ${mib(caps[best])}, ${seconds(curve[best])}.`);
      return { svg: svg + (wrong ? text(0, y + 128, wrong, "bad") : ""), height: y + (wrong ? 136 : 116), numbers, say,
        table: [["bucket", "parameters", "bytes", "ready", "sent", "arrived"], ...times.map((each, k) => [k, plan[k].join(" ") || "which were used", bytes(each.bytes), ...[each.ready, each.start, each.end].map((t) => seconds(now.begin + t))]), ...run.flatMap(([label, , sent]) => sent.map((each, k) => [`run, ${label}: ${k}`, "", bytes(each[0]), seconds(each[1]), seconds(each[3]), seconds(each[4])]))], data: { buckets: plan.length } };
    },
  };
}
