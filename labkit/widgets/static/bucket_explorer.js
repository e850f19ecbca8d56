import { axis, bar, bytes, choice, faint, least, line, most, percent, plot, powers, range, rect, seconds, slider, speed, stripes, strokeOf, sum, text } from "./figure.js";

const COLOURS = ["#0072b2", "#ddaa33", "#56b4e9", "#d55e00", "#332288", "#bbbbbb"];

// What a communication hook does to a gradient of s bytes: passes over memory, bytes sent, whether packets are gathered.
export const HOOKS = {
  none: [0, (s) => s], fp16: [4, (s) => s / 2], "PowerSGD, rank 4": [12, (s) => Math.min(s, 16 * Math.sqrt(s))], "top 1 %": [100, (s) => 0.02 * s, 1],
};
const COMPUTE = { F: ["forward", "#8f8f8f"], B: ["backward", "#c4c4c4"], O: ["optimizer", "#e6e6e6"] };
const MEMORY = 1.6e12; // bytes per second, of an A100

/** Buckets in the order they are sent: from the last parameter to the first (or upwards), each filled up to the cap. */
export function bucketPlan(sizes, cap, first, upwards) {
  const buckets = [], order = range(sizes.length);
  let filled = 0;
  for (const at of upwards ? order : order.reverse()) {
    if (!buckets.length || filled + sizes[at] > ((buckets.length === 1 && first) || cap)) {
      buckets.push([]);
      filled = 0;
    }
    filled += sizes[at];
    buckets.at(-1).push(at);
  }
  return buckets;
}

/** For each bucket { bytes, ready, all, start, end } from backward's begin on: ready here and on the slowest rank, sent one at a time. */
export function bucketTimes(sizes, plan, { backward, ranks, latency, bandwidth, skew = 0, hook = "none" }) {
  const total = sum(sizes), done = [], [passes, packed, gathered] = HOOKS[hook];
  let before = 0, free = 0;
  for (let at = sizes.length - 1; at >= 0; at--) done[at] = ((before += sizes[at]) / total) * backward;
  return plan.map((bucket) => {
    const size = sum(bucket.map((at) => sizes[at])), b = sum(bucket.map((at) => packed(sizes[at])));
    const ready = most([0, ...bucket.map((at) => done[at])]), start = Math.max(ready + skew, free);
    free = start + (passes * size) / MEMORY + (gathered ? (ranks - 1) * (latency + b / bandwidth) : 2 * (ranks - 1) * (latency + b / ranks / bandwidth));
    return { bytes: b, ready, all: ready + skew, start, end: free };
  });
}

export function bucketExplorer(data) {
  const { sizes, caps } = data, mib = (v) => (v ? `${+(v / 2 ** 20).toPrecision(3)} MiB` : "as the others"), last = "last layer first";
  const planFor = (cap, { first, order }) => data.plans?.[caps.indexOf(cap)] ?? bucketPlan(sizes, cap, first, order !== last);
  const around = (values) => [data.forward, data.optimizer].map((part) => (part * values.backward) / data.backward);
  const stepOf = (plan, values) => {
    const [forward, optimizer] = around(values);
    return forward + Math.max(values.backward + values.skew, bucketTimes(sizes, plan, values).at(-1)?.end ?? 0) + optimizer;
  };
  return {
    title: "Buckets", source: data.source, begin: 1e9, stepLabel: "bucket",
    sliders: [
      choice("cap", "bucket cap", data.cap, caps, mib),
      ...(data.plans ? [] : [choice("first", "first bucket", data.first, [...new Set([0, 2 ** 17, 2 ** 20, data.first])].sort((a, b) => a - b), mib), choice("order", "order", last, [last, "first layer first"])]),
      choice("hook", "hook", data.hook, Object.keys(HOOKS)), powers("backward", "backward", data.backward, 1e-4, 10, seconds),
      slider("late", "slowest rank is late by", data.late, 0, 1, (v) => percent(v) + " of backward", 0.05), slider("ranks", "ranks", data.ranks, 2, 64),
      powers("latency", "latency α", data.latency, 1e-7, 1e-3, seconds), powers("bandwidth", "link", data.bandwidth, 1e7, 1e12, speed),
    ],
    steps: (values) => planFor(values.cap, values).length,
    stepName: (values, step) => `${step} of ${planFor(values.cap, values).length} sent`,
    draw(given, step, width) {
      const values = { first: 0, order: last, ...given, skew: given.late * given.backward }, { backward, cap, skew } = values, plan = planFor(cap, values), times = bucketTimes(sizes, plan, values);
      const left = 74, wide = width - left - 12, [forward, optimizer] = around(values), whole = stepOf(plan, values), run = data.run ?? [], total = sum(sizes);
      const end = most([whole, ...run.flatMap(([, compute, sent]) => [...compute, ...sent].map((each) => each.at(-1)))]), x = (time) => left + (time / end) * wide, fill = (k) => COLOURS[k % 6];
      let y = 20, before = 0;
      let svg = stripes(1) + text(left, 12, "gradients in the order backward makes them; width: bytes; colour and number: bucket", "small grey") + text(0, 35, "gradients");
      const of = Object.fromEntries(plan.flatMap((bucket, k) => bucket.map((at) => [at, k])));
      for (let at = sizes.length - 1; at >= 0; at--) {
        const [from, to] = [before, (before += sizes[at])].map((s) => x(forward + (s / total) * backward)), k = of[at], none = k === undefined;
        svg += rect(from, y, to - from, 22, { fill: none ? "none" : fill(k), class: none ? "bad" : "edge", style: !none && "stroke-width:.5", opacity: k >= step && 0.25, "data-parameter": at, "data-bucket": k }, `parameter ${at}: ${bytes(sizes[at])}, bucket ${k ?? "none"}`) + line(to, 44, to, 56, "soft");
      }
      y = 56;
      // A rank: what it computes [letter, start, end], and its buckets [bytes, ready here, ready everywhere, start, end].
      const row = (name, compute, sent, kind) => {
        const own = most([0, ...compute.filter(([word]) => word !== "O").map((each) => each[2])]);
        svg += text(0, y + 15, name) + compute.map(([word, from, to]) => bar(x(from), y, x(to) - x(from), 21, COMPUTE[word][1], x(to) - x(from) > 70 ? COMPUTE[word][0] : word, { "data-compute": `${kind}:${word}` }, `${COMPUTE[word][0]}: ${seconds(from)} to ${seconds(to)}`)).join("");
        sent.forEach(([size, ready, all, start, to], k) => {
          const w = x(to) - x(start), mine = Math.max(ready, sent[k - 1]?.[4] ?? 0), late = all > mine && start > mine;
          svg += faint(k >= step, line(x(ready), y + 21, x(ready), y + 28) + (start > ready ? line(x(ready), y + 23 + (k % 2) * 3, x(start), y + 23 + (k % 2) * 3) : "") + (late ? rect(x(mine), y + 28, x(start) - x(mine), 21, { fill: "url(#lk-idle1)", "data-late": k }, "waits for the slowest rank") : "") +
            bar(x(start), y + 28, w, 21, fill(k), k, {}, `bucket ${k}: ${bytes(size)}, ready ${seconds(ready)}, sent ${seconds(start)} to ${seconds(to)}`) +
            (to > own ? line(x(Math.max(start, own)), y + 27, x(to), y + 27, "", { style: "stroke:currentColor;stroke-width:4" }) : ""), { "data-sent": k, "data-row": kind });
        });
        svg += text(0, y + 43, "all-reduce", "small grey") + line(x(own), y - 3, x(own), y + 52, "now", { "stroke-dasharray": "3 3" });
        y += 58;
      };
      const model = (off) => {
        const over = Math.max(forward + off + backward, forward + (times.at(-1)?.end ?? 0));
        return [[["F", 0, forward + off], ["B", forward + off, forward + off + backward], ["O", over, over + optimizer]], times.map((t) => [t.bytes, forward + t.ready + off, forward + t.all, forward + t.start, forward + t.end])];
      };
      row("rank 0", ...model(0), "model");
      if (skew) row("slowest", ...model(skew), "slowest");
      for (const [k, [rank, ...rest]] of run.entries()) {
        if (!k) svg += text(left, (y += 14) - 4, "this run", "bold");
        row(`rank ${rank}`, ...rest, "run");
      }
      svg += axis(left, y, wide, end, seconds);
      y += 58;
      const comm = sum(times.map((each) => each.end - each.start)), compute = forward + backward + optimizer, exposed = whole - compute, alone = stepOf([range(sizes.length)], values);
      const curve = caps.map((each) => stepOf(planFor(each, values), values)), top = most([alone, ...curve]), best = curve.indexOf(least(curve)), at = caps.indexOf(cap), low = Math.max(compute, comm);
      svg += plot(left, y, wide, 90, "step time for each cap in MiB; ◯ this one, dashed: no overlap, dotted: max(compute, comm)", [
        [curve.map((t, k) => [k, t]), strokeOf(0), {}, [at, curve[at]]], [[[0, alone], [caps.length - 1, alone]], strokeOf(1, 1)], [[[0, low], [caps.length - 1, low]], strokeOf(2, 1)],
      ], [0, caps.length - 1, () => ""], [0, top, seconds]) + caps.map((each, k) => text(left + (k / (caps.length - 1)) * wide, y + 106, +(each / 2 ** 20).toPrecision(2), "small middle" + (k === best ? " bold" : ""), { "data-cap": each })).join("");
      const numbers = [["buckets", plan.length], ["bytes", bytes(sum(times.map((t) => t.bytes)))], ["compute", seconds(compute)], ["communication", seconds(comm)], ["exposed", seconds(exposed)], ["overlapped", percent(comm ? Math.max(0, 1 - exposed / comm) : 0)], ["skew", seconds(skew)], ["step", seconds(whole)], ["no overlap", seconds(alone)], ["at least max(compute, comm)", seconds(low)]];
      if (HOOKS[values.hook][0]) numbers.push([`compressing, if ${HOOKS[values.hook][0]} passes over memory at 1.6 TB/s`, seconds((HOOKS[values.hook][0] * total) / MEMORY)]);
      for (const [label, value] of Object.entries(data.measured ?? {})) numbers.push([`this run: ${label}`, typeof value === "string" ? value : seconds(value)]);
      const wrong = data.faults?.[at];
      const say = wrong || `${plan.length} buckets: ${seconds(exposed)} of ${seconds(comm)} communication are exposed; the step takes ${seconds(whole)}. Best of these caps: ${mib(caps[best])}, ${seconds(curve[best])}.`;
      return { svg: svg + (wrong ? text(0, y + 128, wrong, "bad") : ""), height: y + (wrong ? 136 : 116), numbers, say,
        table: [["bucket", "parameters", "bytes", "ready", "sent", "arrived"], ...times.map((each, k) => [k, plan[k].join(" "), bytes(each.bytes), ...[each.ready, each.start, each.end].map((t) => seconds(forward + t))]), ...run.flatMap(([rank, , sent]) => sent.map((each, k) => [`run, rank ${rank}: ${k}`, "", bytes(each[0]), seconds(each[1]), seconds(each[3]), seconds(each[4])]))], data: { buckets: plan.length } };
    },
  };
}
