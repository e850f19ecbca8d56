import { axis, bytes, inkOn, line, percent, rect, seconds, tag, text } from "./figure.js";

const COLOURS = ["#0072b2", "#ddaa33", "#56b4e9", "#d55e00", "#332288", "#bbbbbb"];

/** Buckets in the order they are sent: from the last parameter to the first, each filled up to the cap. */
export function bucketPlan(sizes, cap) {
  const buckets = [];
  let filled = 0;
  for (let at = sizes.length - 1; at >= 0; at--) {
    if (!buckets.length || filled + sizes[at] > cap) {
      buckets.push([]);
      filled = 0;
    }
    filled += sizes[at];
    buckets.at(-1).push(at);
  }
  return buckets;
}

/** For each bucket { bytes, ready, start, end }: gradients appear evenly by bytes, the link takes one bucket at a time. */
export function bucketTimes(sizes, plan, { backward, ranks, latency, bandwidth }) {
  const total = sizes.reduce((a, b) => a + b, 0), done = [];
  let sum = 0, free = 0;
  for (let at = sizes.length - 1; at >= 0; at--) done[at] = ((sum += sizes[at]) / total) * backward;
  return plan.map((bucket) => {
    const size = bucket.reduce((a, at) => a + sizes[at], 0), ready = Math.max(0, ...bucket.map((at) => done[at])), start = Math.max(ready, free);
    free = start + 2 * (ranks - 1) * (latency + size / ranks / bandwidth);
    return { bytes: size, ready, start, end: free };
  });
}

export function bucketExplorer(data) {
  const { sizes } = data, total = sizes.reduce((a, b) => a + b, 0), caps = data.caps;
  const planFor = (cap) => data.plans?.[caps.indexOf(cap)] ?? bucketPlan(sizes, cap);
  const stepOf = (cap, values) => Math.max(values.backward, bucketTimes(sizes, planFor(cap), values).at(-1)?.end ?? 0);
  const log = (key, label, min, max, show) => ({ key, label, log: true, min, max, value: data[key], show });
  return {
    title: "Buckets", source: data.source, begin: 1e9, stepLabel: "bucket",
    sliders: [
      { key: "cap", label: "bucket cap", options: caps, value: data.cap, show: (v) => `${+(v / 2 ** 20).toPrecision(3)} MiB` },
      log("backward", "backward", 1e-4, 10, seconds), { key: "ranks", label: "ranks", min: 2, max: 64, value: data.ranks, show: String },
      log("latency", "latency α", 1e-7, 1e-3, seconds), log("bandwidth", "link", 1e7, 1e12, (v) => bytes(v) + "/s"),
    ],
    steps: (values) => planFor(values.cap).length,
    stepName: (values, step) => `${step} of ${planFor(values.cap).length} sent`,
    draw(values, step, width) {
      const { backward, cap } = values, plan = planFor(cap), times = bucketTimes(sizes, plan, values), left = 74, wide = width - left - 12;
      const end = Math.max(backward, times.at(-1)?.end ?? 0), x = (time) => left + (time / end) * wide, fill = (k) => COLOURS[k % COLOURS.length];
      let svg = text(0, 35, "gradients", { class: "small" }) + text(0, 77, "backward", { class: "small" }) + text(0, 107, "all-reduce", { class: "small" }) + rect(left, 62, x(backward) - left, 22, { fill: "#b8b8b8", class: "edge" }), sum = 0;
      svg += text(left, 12, "in the order backward makes them; width: bytes; colour and number: bucket", { class: "small grey" });
      const of = Object.fromEntries(plan.flatMap((bucket, k) => bucket.map((at) => [at, k])));
      for (let at = sizes.length - 1; at >= 0; at--) {
        const from = x((sum / total) * backward), to = x(((sum += sizes[at]) / total) * backward), k = of[at];
        svg += rect(from, 20, to - from, 22, { fill: k === undefined ? "none" : fill(k), class: k === undefined ? "bad" : "edge", style: k !== undefined && "stroke-width:.5", opacity: k >= step ? 0.25 : undefined, "data-parameter": at, "data-bucket": k }, `parameter ${at}: ${bytes(sizes[at])}, bucket ${k ?? "none"}`) + line(to, 44, to, 60, { class: "soft" });
      }
      times.forEach((each, k) => {
        const faint = k >= step ? 0.25 : undefined, w = x(each.end) - x(each.start), split = Math.max(each.start, Math.min(backward, each.end));
        svg += tag("g", { opacity: faint, "data-sent": k }, (each.start > each.ready ? line(x(each.ready), 96 + (k % 3) * 3, x(each.start), 96 + (k % 3) * 3, { class: "rule" }) : "") + line(x(each.ready), 84, x(each.ready), 92, { class: "rule" }) +
          rect(x(each.start), 92, w, 22, { fill: fill(k), class: "edge" }, `bucket ${k}: ${bytes(each.bytes)}, ready ${seconds(each.ready)}, sent ${seconds(each.start)} to ${seconds(each.end)}`) +
          (each.end > backward ? line(x(split), 91, x(each.end), 91, { style: "stroke:currentColor;stroke-width:4" }) : "") + (w > 16 ? text(x(each.start) + w / 2, 107, k, { class: "middle small", style: `fill:${inkOn(fill(k))}` }) : ""));
      });
      svg += line(x(backward), 56, x(backward), 120, { class: "now", "stroke-dasharray": "3 3" }) + axis(left, 120, wide, end, seconds);
      const curve = caps.map((each) => stepOf(each, values)), most = Math.max(...curve), best = curve.indexOf(Math.min(...curve)), cx = (k) => left + (k / (caps.length - 1)) * wide, cy = (t) => 268 - (90 * t) / most;
      svg += text(left, 166, "step time for each cap (◯ this one, thick: the best)", { class: "small grey" }) + tag("path", { class: "rule", d: "M" + curve.map((t, k) => `${cx(k).toFixed(1)} ${cy(t).toFixed(1)}`).join("L") });
      svg += curve.map((t, k) => tag("circle", { cx: cx(k), cy: cy(t), r: caps[k] === cap ? 7 : 3, class: "edge", style: k === best ? "stroke-width:3.5" : "", fill: caps[k] === cap ? "none" : "#0072b2", "data-cap": caps[k] }, tag("title", {}, `${seconds(t)}`)) + text(cx(k), 288, +(caps[k] / 2 ** 20).toPrecision(2), { class: "small middle" })).join("");
      svg += text(0, 288, "cap, MiB", { class: "small" }) + text(0, cy(most) + 4, seconds(most), { class: "small" }) + text(0, 272, "0", { class: "small" }) + line(left, 268, left + wide, 268, { class: "soft" });
      const comm = times.reduce((a, each) => a + each.end - each.start, 0), exposed = end - backward, one = backward + bucketTimes(sizes, [sizes.map((_, at) => at)], values)[0].end - backward;
      const numbers = [["buckets", plan.length], ["backward", seconds(backward)], ["communication", seconds(comm)], ["exposed", seconds(exposed)], ["overlapped", percent(comm ? 1 - exposed / comm : 0)], ["step", seconds(end)], ["no overlap", seconds(one)], ["at least max(compute, comm)", seconds(Math.max(backward, comm))]];
      const wrong = data.faults?.[caps.indexOf(cap)];
      const say = wrong || `${plan.length} buckets: ${seconds(exposed)} of ${seconds(comm)} communication are exposed; the step takes ${seconds(end)}. Best of these caps: ${+(caps[best] / 2 ** 20).toPrecision(2)} MiB, ${seconds(curve[best])}.`;
      return { svg: svg + (wrong ? text(0, 310, wrong, { class: "bad" }) : ""), height: wrong ? 318 : 298, numbers, say,
        table: [["bucket", "parameters", "bytes", "ready", "sent", "arrived"], ...times.map((each, k) => [k, plan[k].join(" "), bytes(each.bytes), seconds(each.ready), seconds(each.start), seconds(each.end)])], data: { buckets: plan.length } };
    },
  };
}
