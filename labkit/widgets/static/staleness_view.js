import { axis, between, inkOn, line, percent, rect, tag, text } from "./figure.js";

const low = "#fff0d9", high = "#8c2d04";

/** Numbers of 0 to 1 that are the same in every run (mulberry32). */
export function draws(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 1831565813) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Updates [worker, read, applied, start, end]; a worker may be `bound` pushes ahead of the slowest ("sync": all wait for all). */
export function simulate({ workers, bound, straggler, delay, seed }, count = 60) {
  const next = draws(seed), clock = Array(workers).fill(0), updates = [], sync = bound === "sync", most = bound === "async" ? Infinity : +bound;
  const begin = (w, start, read) => ({ w, start, read, end: start + (w === 0 ? straggler : 1) * (0.75 + 0.5 * next()) + delay });
  let busy = clock.map((_, w) => begin(w, 0, 0)), waiting = [], version = 0;
  while (updates.length < count && busy.length) {
    const now = busy.reduce((a, b) => (b.end < a.end || (b.end === a.end && b.w < a.w) ? b : a));
    busy = busy.filter((each) => each !== now);
    updates.push([now.w, now.read, version, now.start, now.end]);
    clock[now.w] += 1;
    waiting.push(now.w);
    if (!sync) version += 1;
    else if (!busy.length) version += 1;
    const slowest = Math.min(...clock), free = waiting.filter((w) => (sync ? !busy.length : clock[w] - slowest <= most)).sort((a, b) => a - b);
    waiting = waiting.filter((w) => !free.includes(w));
    for (const w of free) busy.push(begin(w, now.end + delay, version));
  }
  return updates;
}

export function stalenessView(data) {
  const options = ["sync", 0, 1, 2, 4, 8, "async"], slider = (key, label, min, max, step = 1) => ({ key, label, min, max, step, value: data[key], show: String });
  const updatesFor = (values) => data.updates ?? simulate(values);
  return {
    title: "Staleness", source: data.source, begin: 1e9, stepLabel: "update",
    sliders: data.updates ? [] : [
      { key: "bound", label: "may be ahead by", options, value: data.bound, show: String }, slider("workers", "workers", 1, 8),
      slider("straggler", "worker 0 is slower by", 1, 8, 0.5), slider("delay", "network delay", 0, 1, 0.05), slider("seed", "seed", 0, 20),
    ],
    steps: (values) => updatesFor(values).length,
    draw(values, step, width) {
      const updates = updatesFor(values), shown = updates[step - 1], count = 1 + Math.max(...updates.map((u) => u[0])), tau = updates.map((u) => u[2] - u[1]), most = Math.max(1, ...tau);
      const left = 70, right = 130, wide = width - left - right, end = Math.max(...updates.map((u) => u[4])), x = (t) => left + (t / end) * wide, top = 34, tall = 25, row = (w) => top + 26 + w * tall;
      let svg = text(0, top + 8, "server", { class: "small" }) + line(left, top + 4, left + wide, top + 4, { class: "rule" }), versions = new Map();
      updates.forEach((u, k) => versions.set(u[2], k));
      const missed = shown ? [...versions].filter(([v]) => v >= shown[1] && v < shown[2]) : [];
      for (const [v, k] of versions) {
        const lit = missed.some(([m]) => m === v);
        svg += line(x(updates[k][4]), top - (lit ? 9 : 3), x(updates[k][4]), top + 11, { class: lit ? "now" : "rule", style: lit ? "stroke-width:3.5" : "", opacity: k >= step ? 0.25 : undefined, "data-version": v, "data-missed": lit ? 1 : 0 });
      }
      for (let w = 0; w < count; w++) {
        svg += text(0, row(w) + 14, `worker ${w}`, { class: "small" });
        let last = 0;
        updates.forEach((u, k) => {
          if (u[0] !== w) return;
          if (u[3] > last) svg += rect(x(last), row(w), x(u[3]) - x(last), 19, { style: "fill:url(#lk-wait)" }, "waits");
          last = u[4];
          const fill = between(low, high, tau[k] / most), bad = tau[k] < 0, bar = x(u[4]) - x(u[3]);
          svg += tag("g", { opacity: k >= step ? 0.25 : undefined }, rect(x(u[3]), row(w), bar, 19, { fill, class: bad ? "bad" : k === step - 1 ? "now" : "edge", style: bad || k === step - 1 ? `fill:${fill}` : "stroke-width:.6", "data-update": k, "data-tau": tau[k] }, `update ${k} of worker ${w}: read version ${u[1]}, applied to version ${u[2]}, staleness ${tau[k]}`) +
            (bar > 13 ? text(x(u[3]) + bar / 2, row(w) + 14, tau[k], { class: "small middle", style: `fill:${inkOn(fill)}` }) : ""));
        });
      }
      if (shown) svg += line(x(shown[3]), top + 11, x(shown[3]), row(shown[0]), { class: "now", "stroke-dasharray": "2 2" }) + line(x(shown[4]), row(shown[0]), x(shown[4]), top + 11, { class: "now" });
      const base = row(count) + 76, level = (t) => base - (56 * t) / most;
      svg += '<defs><pattern id="lk-wait" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" style="stroke:var(--grey)"/></pattern></defs>' + text(0, base, "staleness", { class: "small" });
      updates.forEach((u, k) => (svg += line(x(u[4]), base, x(u[4]), level(tau[k]), { class: k === step - 1 ? "now" : "rule", opacity: k >= step ? 0.25 : undefined }) + tag("circle", { cx: x(u[4]), cy: level(tau[k]), r: 2.5, fill: "currentColor", opacity: k >= step ? 0.25 : undefined })));
      svg += text(left - 8, level(most) + 4, most, { class: "small end" }) + axis(left, base + 4, wide, end, (t) => +t.toPrecision(6) + "");
      const hist = Array.from({ length: most + 1 }, (_, t) => tau.slice(0, step).filter((each) => each === t).length), peak = Math.max(1, ...hist), hx = left + wide + 40, pitch = Math.min(18, (base - top) / (most + 1));
      svg += text(hx - 26, top - 8, "updates by staleness", { class: "small" }) + hist.map((n, t) => rect(hx, top + 4 + t * pitch, (n / peak) * 60, pitch - 2, { fill: between(low, high, t / most), class: "edge" }) + (pitch > 10 ? text(hx - 6, top + 2 + t * pitch + pitch / 2 + 4, t, { class: "small end" }) + text(hx + 4 + (n / peak) * 60, top + 2 + t * pitch + pitch / 2 + 4, n, { class: "small" }) : "")).join("");
      const done = tau.slice(0, step), sorted = [...done].sort((a, b) => a - b), span = step ? Math.max(...updates.slice(0, step).map((u) => u[4])) : 0;
      const busy = updates.reduce((sum, u) => sum + u[4] - u[3], 0), own = Array.from({ length: count }, (_, w) => Math.max(0, ...updates.filter((u) => u[0] === w).map((u) => u[4]))).reduce((a, b) => a + b), ahead = Math.max(...updates.map((u) => updates.filter((o) => o[0] === u[0] && o[4] <= u[3]).length - Math.min(...Array.from({ length: count }, (_, w) => updates.filter((o) => o[0] === w && o[4] <= u[3]).length))));
      const timed = data.timed ?? true, numbers = [["updates", step], ...(timed ? [["a unit of time", span ? (step / span).toFixed(2) : "–"]] : []), ["staleness mean", step ? (done.reduce((a, b) => a + b, 0) / step).toFixed(2) : "–"], ["95 %", sorted[Math.ceil(0.95 * step) - 1] ?? "–"], ["most", sorted.at(-1) ?? "–"], ...(timed ? [["waiting", percent(1 - busy / own)]] : [])];
      const bound = data.updates ? data.bound : { sync: 0, async: null }[values.bound] ?? (values.bound === "async" ? null : +values.bound);
      numbers.push(["furthest ahead of the slowest", `${ahead}${bound === null || bound === undefined ? "" : ` ≤ ${bound} ${ahead <= bound ? "✓" : "✗"}`}`, ahead > (bound ?? Infinity)]);
      const wrong = updates.findIndex((u, k) => tau[k] < 0 && k < step);
      const say = wrong >= 0 ? `Update ${wrong} of worker ${updates[wrong][0]} read version ${updates[wrong][1]} but was applied to version ${updates[wrong][2]}.` : shown ? `Update ${step - 1}: worker ${shown[0]} read version ${shown[1]}, applied to version ${shown[2]}: staleness ${tau[step - 1]}${missed.length ? `; it missed ${missed.map(([v]) => `update ${versions.get(v)}`).slice(0, 6).join(", ")}${missed.length > 6 ? " ..." : ""}` : ""}.` : "Nothing was applied yet.";
      return { svg, height: base + 26, numbers, say, table: [["update", "worker", "read", "applied", "staleness"], ...updates.slice(0, step).map((u, k) => [k, u[0], u[1], u[2], tau[k]])], data: { updates: updates.length } };
    },
  };
}
