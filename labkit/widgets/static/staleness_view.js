import { axis, bar, between, choice, faint, least, legend, line, most, percent, plot, range, rect, slider, stripes, strokeOf, sum, tag, text } from "./figure.js";

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

/** Loss of a slope (steepness 1 and 0.1, noisy gradients) trained by these updates: [end, updates, loss] for each version. */
export function losses(updates, { workers, lr, divided, seed }) {
  const next = draws(seed + 1000), steep = [1, 0.1], history = [[3, 3]], sizes = {};
  for (const [, , applied] of updates) sizes[applied] = (sizes[applied] ?? 0) + 1; // of a synchronous version the mean counts
  let w = history[0];
  return updates.flatMap(([, read, applied, , end], k) => {
    const by = sizes[applied] > 1 ? sizes[applied] : { workers, staleness: Math.max(1, applied - read) }[divided] ?? 1, rate = lr / by, old = history[read];
    w = w.map((each, d) => each - rate * (steep[d] * old[d] + next() - 0.5));
    history[applied + 1] = w;
    return updates[k + 1]?.[2] === applied ? [] : [[end, k + 1, sum(w.map((each, d) => (steep[d] * each * each) / 2))]];
  });
}

export function stalenessView(data) {
  const { runs } = data, tidy = (t) => String(+t.toPrecision(4)), names = runs?.map((run) => run.name);
  // Every run on the common axis: [name, updates, [time, updates, loss]]; the first of a simulation is the one that the sliders choose.
  const all = (values) => {
    if (runs) return runs.map(({ name, updates, losses = [] }) => [name, updates, losses]);
    const named = (bound) => (bound === "sync" ? "synchronous" : bound === "async" ? "asynchronous" : `ahead by ${bound}`);
    return [...new Set([values.bound, "sync", 2, "async"])].map((bound) => {
      const updates = simulate({ ...values, bound }, bound === values.bound ? 60 : 240);
      return [named(bound), updates, losses(updates, values)];
    });
  };
  const chosen = (values) => Math.max(0, names?.indexOf(values.run) ?? 0), updatesFor = (values) => (runs ? runs[chosen(values)].updates : simulate(values));
  return {
    title: "Staleness", source: data.source, begin: 1e9, stepLabel: "update", help: "Click an update to see what it missed.",
    sliders: [
      ...(runs ? (runs.length > 1 ? [choice("run", "run", names[0], names)] : []) : [
        choice("bound", "may be ahead by", data.bound, ["sync", 0, 1, 2, 4, 8, "async"]), slider("workers", "workers", data.workers, 1, 8),
        slider("straggler", "worker 0 is slower by", data.straggler, 1, 8, String, 0.5), slider("delay", "network delay", data.delay, 0, 1, String, 0.05), slider("seed", "seed", data.seed, 0, 20),
        slider("lr", "learning rate", data.lr, 0.1, 4, (v) => (+v).toFixed(1), 0.1), choice("divided", "divided by", data.divided, ["nothing", "workers", "staleness"]),
      ]),
      ...(!runs || runs.some((run) => run.losses) ? [choice("against", "loss against", "time", ["time", "updates"])] : []),
    ],
    pick: (mark, far) => (far ? undefined : +mark.dataset.pick + 1),
    steps: (values) => updatesFor(values).length,
    draw(values, step, width) {
      const updates = updatesFor(values), which = chosen(values), shown = updates[step - 1], count = 1 + most(updates.map((u) => u[0])), tau = updates.map((u) => u[2] - u[1]), top = 34, highest = most([1, ...tau]);
      const every = all(values), timed = runs ? runs[which].timed : true, { bound } = runs ? runs[which] : { bound: values.bound === "sync" ? 0 : values.bound === "async" ? undefined : +values.bound };
      const left = 70, right = 130, wide = width - left - right, end = most((timed && runs ? runs.filter((run) => run.timed).flatMap((run) => run.updates) : updates).map((u) => u[4])), x = (t) => left + (t / end) * wide, tall = 25, row = (w) => top + 26 + w * tall;
      let svg = stripes(1) + text(0, top + 8, "server") + line(left, top + 4, left + wide, top + 4);
      const versions = new Map(updates.map((u, k) => [u[2], k]));
      const missed = shown ? [...versions].filter(([v]) => v >= shown[1] && v < shown[2]) : [];
      for (const [v, k] of versions) {
        const lit = missed.some(([m]) => m === v);
        svg += line(x(updates[k][4]), top - (lit ? 9 : 3), x(updates[k][4]), top + 11, lit ? "now" : "rule", { style: lit && "stroke-width:3.5", opacity: k >= step && 0.25, "data-version": v, "data-missed": lit ? 1 : 0 });
      }
      for (const [k, [w, , , start, end]] of updates.entries()) svg += faint(k >= step, line(x(start), top + 11, x(start), row(w), "soft") + line(x(end), row(w), x(end), top + 11, "soft"));
      for (let w = 0; w < count; w++) {
        svg += text(0, row(w) + 14, `worker ${w}`);
        let last = 0;
        updates.forEach((u, k) => {
          if (u[0] !== w) return;
          if (u[3] > last) svg += rect(x(last), row(w), x(u[3]) - x(last), 19, { fill: "url(#lk-idle1)" }, "waits");
          last = u[4];
          const fill = between(low, high, tau[k] / highest), bad = tau[k] < 0, now = k === step - 1;
          svg += faint(k >= step, bar(x(u[3]), row(w), x(u[4]) - x(u[3]), 19, fill, tau[k], { class: bad ? "bad" : now ? "now" : "edge", style: bad || now ? `fill:${fill}` : "stroke-width:.6", "data-pick": k, "data-update": k, "data-tau": tau[k] }, `update ${k} of worker ${w}: read version ${u[1]}, applied to version ${u[2]}, staleness ${tau[k]}`));
        });
      }
      if (shown) svg += line(x(shown[3]), top + 11, x(shown[3]), row(shown[0]), "now", { "stroke-dasharray": "2 2" }) + line(x(shown[4]), row(shown[0]), x(shown[4]), top + 11, "now") + text(Math.min(x(shown[3]), x(shown[4]) - 56), top - 12, `v${shown[1]}`) + text(x(shown[4]), top - 12, `v${shown[2]}`, "small end");
      let base = row(count) + 76;
      const level = (t) => base - (56 * t) / highest;
      svg += text(0, base, "staleness");
      updates.forEach((u, k) => (svg += faint(k >= step, line(x(u[4]), base, x(u[4]), level(tau[k]), k === step - 1 ? "now" : "rule") + tag("circle", { cx: x(u[4]), cy: level(tau[k]), r: 2.5, fill: "currentColor" }))));
      svg += text(left - 8, level(highest) + 4, highest, "small end") + axis(left, base + 4, wide, end, tidy);
      const hist = range(highest + 1).map((t) => tau.slice(0, step).filter((each) => each === t).length), peak = most([1, ...hist]), hx = left + wide + 40, pitch = Math.min(18, (base - top) / (highest + 1));
      svg += text(hx - 26, top - 8, "updates by staleness") + hist.map((n, t) => {
        const y = top + 4 + t * pitch, long = (n / peak) * 60, middle = y + pitch / 2 + 2;
        return rect(hx, y, long, pitch - 2, { fill: between(low, high, t / highest), class: "edge" }) + (pitch > 10 || !t || t === highest ? text(hx - 6, middle, t, "small end") + text(hx + 4 + long, middle, n) : "");
      }).join("");
      const done = tau.slice(0, step), sorted = [...done].sort((a, b) => a - b), span = most([0, ...updates.slice(0, step).map((u) => u[4])]), mean = step ? (sum(done) / step).toFixed(2) : "–";
      const busy = sum(updates.map((u) => u[4] - u[3])), own = sum(range(count).map((w) => most([0, ...updates.filter((u) => u[0] === w).map((u) => u[4])]))), pushed = (w, by) => updates.filter((o) => o[0] === w && o[4] <= by).length;
      const ahead = most(updates.map((u) => pushed(u[0], u[3]) - least(range(count).map((w) => pushed(w, u[3]))))), limited = Number.isInteger(bound);
      const numbers = [["updates", step], ...(timed ? [["a unit of time", span ? (step / span).toFixed(2) : "–"]] : []), ["staleness mean", mean], ["95 %", sorted[Math.ceil(0.95 * step) - 1] ?? "–"], ["most", sorted.at(-1) ?? "–"], ...(timed ? [["waiting", percent(1 - busy / own)]] : [])];
      numbers.push(["furthest ahead of the slowest", `${ahead}${limited ? ` ≤ ${bound} ${ahead <= bound ? "✓" : "✗"}` : ""}`, limited && ahead > bound]);
      const curves = every.filter((each) => each[2].length);
      base += 26;
      if (curves.length) {
        const by = values.against === "updates" ? 1 : 0, points = curves.map((each) => each[2].map((p) => [p[by], p[2]]).filter(([t]) => runs || t <= (by ? 60 : end))), found = points.flat().map((p) => p[1]).filter((v) => v > 0 && v < 1e4);
        const from = Math.max(1e-4, least(found)), to = Math.max(most(found), from * 10), until = runs ? least(points.map((p) => p.at(-1)[0])) : by ? 60 : end, across = [0, runs ? most(points.flat().map((p) => p[0])) : until, tidy], now = by ? step : span;
        svg += plot(left, base + 26, wide, 120, `loss against ${by ? "updates" : "time"}; thick: the run above`, [...points.map((p, k) => [p, strokeOf(k, every[which] === curves[k] ? 4 : 2), { "data-run": curves[k][0] }]), ...(now <= across[1] ? [[[[now, from], [now, to]], "stroke:currentColor;stroke-dasharray:3 3"]] : [])], across, [from, to, tidy, true]);
        const [names, more] = legend(curves.map((each) => each[0]), base + 166, width);
        svg += names;
        base += 166 + more;
        curves.forEach((each, k) => numbers.push([`${each[0]}: loss at ${tidy(until)}`, tidy(points[k].filter((p) => p[0] <= until).at(-1)?.[1] ?? NaN)]));
      }
      const wrong = updates.findIndex((u, k) => tau[k] < 0 && k < step);
      const say = wrong >= 0 ? `Update ${wrong} of worker ${updates[wrong][0]} read version ${updates[wrong][1]} but was applied to version ${updates[wrong][2]}.` : shown ? `Update ${step - 1}: worker ${shown[0]} read version ${shown[1]}, applied to version ${shown[2]}: staleness ${tau[step - 1]}${missed.length ? `; it missed ${missed.map(([v]) => `update ${versions.get(v)}`).slice(0, 6).join(", ")}${missed.length > 6 ? " ..." : ""}` : ""}.` : "Nothing was applied yet.";
      return { svg, height: base, numbers, say, table: [["update", "worker", "read", "applied", "staleness"], ...updates.slice(0, step).map((u, k) => [k, u[0], u[1], u[2], tau[k]])], data: { updates: updates.length } };
    },
  };
}
