import { axis, bar, between, bytes, choice, faint, least, legend, line, most, percent, plot, powers, range, rect, slider, stripes, strokeOf, sum, tag, text } from "./figure.js";

const low = "#fff0d9", high = "#8c2d04";

const delayOf = (bound) => +`${bound}`.split(" ")[1]; // NaN, which nothing exceeds, for other policies

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

/** Gradients [worker, read, applied, start, end, dropped: staler than `drop`]; a worker may be `bound` pushes ahead of the slowest ("sync": all wait for all; "delay d": none begins before all are in that were begun more than d before it). */
export function simulate({ workers, bound, straggler, delay, seed, drop, law }, count = 60) {
  const next = draws(seed), clock = Array(workers).fill(0), updates = [], sync = bound === "sync", within = delayOf(bound);
  let busy = [], waiting = range(workers), version = 0, applied = 0, begun = 0;
  const begin = (start) => {
    const all = !busy.length, slowest = least(clock);
    waiting = waiting.filter((w) => {
      if (sync ? !all : clock[w] - slowest > bound || begun - least(busy.map((each) => each.k)) > within) return true;
      const u = next();
      busy.push({ w, k: begun++, start, read: version, end: start + (w ? 1 : straggler) * ({ equal: 1, exponential: -Math.log(1 - u) }[law] ?? 0.75 + 0.5 * u) + delay });
    });
  };
  begin(0);
  while (applied < count) {
    const now = busy.reduce((a, b) => (b.end < a.end || (b.end === a.end && b.w < a.w) ? b : a)), late = version - now.read > drop;
    busy = busy.filter((each) => each !== now);
    updates.push([now.w, now.read, version, now.start, now.end, +late]);
    clock[now.w] += 1;
    waiting.push(now.w);
    if (!late) applied += 1;
    if (sync ? !busy.length : !late) version += 1;
    begin(now.end + delay);
  }
  return updates;
}

/** Loss of a slope (steepness 1 and 0.1, noisy gradients) trained by these updates: [end, updates, loss] for each version. */
export function losses(all, { workers, lr, divided, seed }) {
  const updates = all.filter((u) => !u[5]), next = draws(seed + 1000), steep = [1, 0.1], history = [[3, 3]], sizes = {};
  for (const [, , applied] of updates) sizes[applied] = (sizes[applied] ?? 0) + 1; // of a synchronous version the mean counts
  let w = history[0];
  return updates.flatMap(([, read, applied, , end], k) => {
    const by = sizes[applied] > 1 ? sizes[applied] : { workers, staleness: Math.max(1, applied - read) }[divided] ?? 1, rate = lr / by, old = history[read];
    w = w.map((each, d) => each - rate * (steep[d] * old[d] + next() - 0.5));
    history[applied + 1] = w;
    return updates[k + 1]?.[2] === applied ? [] : [[end, k + 1, sum(w.map((each, d) => (steep[d] * each * each) / 2))]];
  });
}

/** For each gradient, how many pushes its worker had more than the slowest when it was begun. */
export function aheadOf(updates, workers) {
  return updates.map(([w, , , start]) => {
    const pushed = Array(workers).fill(0);
    for (const [v, , , , end] of updates) if (end <= start) pushed[v] += 1;
    return pushed[w] - least(pushed);
  });
}

export function stalenessView(data) {
  const { runs } = data, tidy = (t) => String(+t.toPrecision(4)), names = runs?.map((run) => run.name);
  // Every run on the common axis, with losses as [time, updates, loss]; the first of a simulation is the one that the sliders choose.
  const all = (values) => runs ?? [...new Set([values.bound, "sync", 2, "async"])].map((bound) => {
    const updates = simulate({ ...values, bound }, bound === values.bound ? 60 : 240);
    return { name: policy(bound), updates, losses: losses(updates, values), timed: true, bound: bound === "sync" ? 0 : bound };
  });
  const policy = (bound) => ({ sync: "synchronous", async: "asynchronous" })[bound] ?? (bound >= 0 ? `ahead by ${bound}` : bound);
  const chosen = (values) => Math.max(0, names?.indexOf(values.run) ?? 0);
  return {
    title: "Staleness", source: data.source, begin: 1e9, stepLabel: "update", help: "Click an update.",
    sliders: [
      ...(runs ? (runs.length > 1 ? [choice("run", "run", names[0], names)] : []) : [
        choice("bound", "policy", data.bound, ["sync", 0, 1, 2, 4, 8, "delay 2", "delay 4", "delay 8", "async"], policy), choice("drop", "drop if staler than", data.drop, ["–", 0, 1, 2, 4, 8]), slider("workers", "workers", data.workers, 1, 8),
        slider("straggler", "worker 0 is slower by", data.straggler, 1, 8, String, 0.5), choice("law", "times", data.law, ["equal", "±25 %", "exponential"]), slider("delay", "network delay", data.delay, 0, 1, String, 0.05), slider("seed", "seed", data.seed, 0, 20),
        slider("lr", "learning rate", data.lr, 0.1, 4, (v) => (+v).toFixed(1), 0.1), choice("divided", "divided by", data.divided, ["nothing", "workers", "staleness"]),
      ]),
      ...(data.size ? [powers("size", "weights", data.size, 1e3, 1e12, bytes)] : []),
      ...(!runs || runs.some((run) => run.losses) ? [choice("against", "loss against", "time", ["time", "updates"])] : []),
    ],
    pick: (mark, far) => (far ? undefined : +mark.dataset.pick + 1),
    steps: (values) => all(values)[chosen(values)].updates.length,
    draw(values, step, width) {
      const every = all(values), run = every[chosen(values)], { updates, timed, bound, gaps = [], sent, norms } = run, shown = updates[step - 1], count = 1 + most(updates.map((u) => u[0])), taus = updates.map((u) => u[2] - u[1]), top = 34, used = updates.filter((u) => !u[5]), tau = used.map((u) => u[2] - u[1]), highest = most([1, ...tau]);
      const { drop } = values, within = delayOf(values.bound), late = runs ? 0 : values.delay, limited = Number.isInteger(bound);
      const left = 94, right = 130, wide = width - left - right, end = most((timed && runs ? runs.filter((run) => run.timed).flatMap((run) => run.updates) : updates).map((u) => u[4])), x = (t) => left + (t / end) * wide, tall = 25, row = (w) => top + 26 + w * tall;
      const span = most([0, ...updates.slice(0, step).map((u) => u[4])]), ahead = aheadOf(updates, count), upright = (t, from, to, kind, more) => line(x(t), from, x(t), to, kind, more);
      const name = (k, [w, read, to, , , dropped] = updates[k]) => `Update ${k}: worker ${w} read version ${read}, ${dropped ? "dropped at" : "applied to"} version ${to}: staleness ${taus[k]}`;
      let svg = stripes(1) + text(0, top + 8, "server") + line(left, top + 4, left + wide, top + 4), labels = [];
      const versions = new Map(updates.flatMap((u, k) => (u[5] ? [] : [[u[2], k]])));
      const missed = shown ? [...versions].filter(([v]) => v >= shown[1] && v < shown[2]) : [];
      // Names of versions, where they have room; those of the chosen gradient first.
      const label = (at, v, kind) => {
        if (!labels.some((other) => Math.abs(other - at) < 27)) svg += text(labels[labels.push(at) - 1], top - 12, `v${v}`, kind + " middle");
      };
      if (shown) {
        label(x(shown[4]), shown[2], "bold small");
        label(x(shown[3]), shown[1], "bold small");
      }
      for (const [v, k] of versions) {
        const lit = missed.some(([m]) => m === v), at = updates[k][4];
        svg += upright(at, top - (lit ? 9 : 3), top + 11, lit ? "now" : "rule", { style: lit && "stroke-width:3.5", opacity: k >= step && 0.25, "data-version": v, "data-missed": lit ? 1 : 0 });
        label(x(at), v, "tiny grey");
      }
      for (const [t, lost] of gaps) svg += upright(t, top - 9, top + 17, "", { style: "stroke:var(--bad);stroke-width:3", "data-gap": lost });
      for (const [k, [w, , , start, end]] of updates.entries()) svg += faint(k >= step, upright(start, top + 11, row(w), "soft") + upright(end, top + 11, row(w), "soft"));
      let busy = 0, own = 0;
      for (let w = 0; w < count; w++) {
        const held = updates.findLast((u, k) => u[0] === w && (u[3] < span || k < step));
        let last = 0;
        svg += text(0, row(w) + 14, `worker ${w}`) + text(left - 8, row(w) + 14, `v${held?.[1] ?? 0}`, "small end grey", { "data-held": w });
        updates.forEach((u, k) => {
          if (u[0] !== w) return;
          const pulled = u[3] - (u[3] && late), pushed = u[4] - late, thin = (from, to) => (late && to > from ? rect(x(from), row(w) + 7, x(to) - x(from), 5, { fill: "currentColor" }) : "");
          if (pulled > last + 1e-9 * end) svg += faint(k >= step, rect(x(last), row(w), x(pulled) - x(last), 19, { fill: "url(#lk-idle1)", "data-waits": w }, "waits"));
          last = u[4];
          busy += last - pulled;
          const fill = u[5] ? "#767676" : between(low, high, taus[k] / highest), bad = taus[k] < 0, now = k === step - 1;
          svg += faint(k >= step, thin(pulled, u[3]) + thin(pushed, u[4]) + bar(x(u[3]), row(w), x(pushed) - x(u[3]), 19, fill, u[5] ? "✗" : taus[k], { class: bad ? "bad" : now ? "now" : "thin", "data-pick": k, "data-update": k, "data-tau": taus[k], "data-dropped": !!u[5] && 1 }, name(k)));
        });
        own += last;
      }
      if (shown) svg += upright(shown[3], top + 11, row(shown[0]), "now", { "stroke-dasharray": "2 2" }) + upright(shown[4], row(shown[0]), top + 11, "now");
      let base = row(count) + 76;
      const scale = most([highest, limited && bound, +drop || 0]), level = (t) => base - (56 * Math.max(t, 0)) / scale, flat = (at, words) => line(left, level(at), left + wide, level(at), "now", { "stroke-dasharray": "6 3", "data-bound": at }) + text(left + wide + 4, level(at) + 4, words);
      svg += text(0, base, "staleness") + (limited ? text(0, base - 18, "– ahead", "small grey") + flat(bound, "s") : "") + (drop >= 0 ? flat(drop, "drop") : "");
      updates.forEach((u, k) => {
        const at = x(u[4]);
        svg += faint(k >= step, (u[5] ? "" : upright(u[4], base, level(taus[k]), k === step - 1 ? "now" : "rule") + tag("circle", { cx: at, cy: level(taus[k]), r: 2.5, fill: "currentColor" })) + (limited ? line(at - 4, level(ahead[k]), at + 4, level(ahead[k]), ahead[k] > bound ? "bad" : "now") : ""));
      });
      svg += text(left - 8, level(highest) + 4, highest, "small end") + axis(left, base + 4, wide, end, tidy);
      const done = tau.slice(0, updates.slice(0, step).filter((u) => !u[5]).length), hist = range(highest + 1).map((t) => done.filter((each) => each === t).length), peak = most([1, ...hist]), hx = left + wide + 40, pitch = Math.min(18, (base - 70 - top) / (highest + 1));
      svg += text(hx - 26, top - 8, "updates by staleness") + hist.map((n, t) => {
        const y = top + 4 + t * pitch, long = (n / peak) * 60, middle = y + pitch / 2 + 2;
        return rect(hx, y, long, pitch - 2, { fill: between(low, high, t / highest), class: "edge" }) + (pitch > 10 || !t || t === highest ? text(hx - 6, middle, t, "small end") + text(hx + 4 + long, middle, n) : "");
      }).join("");
      const sorted = [...done].sort((a, b) => a - b), n = done.length, mean = n ? (sum(done) / n).toFixed(2) : "–";
      // What a value may be at most, with a tick or a cross.
      const held = (value = "–", limit, words = "") => (limit >= 0 && n ? [`${value} ≤ ${words}${limit} ${value <= limit ? "✓" : "✗"}`, value > limit] : [value]);
      const limit = drop >= 0 ? [drop] : values.bound === "sync" ? [0] : within ? [within + Math.min(within, count - 1), "d + min(d, N−1) = "] : [(count - 1) * (2 * bound + 1), "(N−1)(2s+1) = "];
      const numbers = [["updates", n], ["a unit of time", timed && span ? (n / span).toFixed(2) : "–"], ["staleness mean", mean], ["95 %", sorted[Math.ceil(0.95 * n) - 1] ?? "–"],
        ["most", ...held(sorted.at(-1), ...limit)], ["waiting", timed ? percent(1 - busy / own) : "–"], ["furthest ahead of the slowest", ...held(most(ahead), bound)],
        ["dropped", `${step - n} of ${step}`], ...(gaps.length ? [["missing from the record", gaps.map((gap) => gap[1]).join(", "), 1]] : []), ...(values.size ? [["pulled and pushed", bytes(2 * step * values.size)]] : []), ...(sent ? [["sent to the server", bytes(sent)]] : [])];
      // Lines on a picture's width with their names below.
      const panel = (tall, title, names, ...more) => {
        const [entries, high] = legend(names, base + tall + 72, width);
        svg += plot(left, base + 52, wide, tall, title, ...more) + entries;
        base += tall + 46 + high;
      };
      if (norms) panel(60, "compression: norms of each gradient's error and residual", Object.keys(norms), Object.entries(norms).map(([name, list], k) => [list.map((v, at) => [updates[at][4], v]), strokeOf(k), { "data-norm": name }]), [0, end, tidy], [0, most(Object.values(norms).flat()), tidy]);
      const curves = every.filter((each) => each.losses);
      if (curves[0]) {
        const by = values.against === "updates" ? 1 : 0, points = curves.map((each) => each.losses.map((p) => [p[by], p[2]]).filter(([t]) => runs || t <= (by ? 60 : end))), found = points.flat().map((p) => p[1]).filter((v) => v > 0 && v < 1e4);
        const from = Math.max(1e-4, least(found)), to = Math.max(most(found), from * 10), until = runs ? least(points.map((p) => p.at(-1)[0])) : by ? 60 : end, across = [0, runs ? most(points.flat().map((p) => p[0])) : until, tidy], now = by ? n : span;
        panel(120, `loss against ${by ? "updates" : "time"}; thick: the run above`, curves.map((each) => each.name), [...points.map((p, k) => [p, strokeOf(k, run === curves[k] ? 4 : 2), { "data-run": curves[k].name }]), ...(now <= across[1] ? [[[[now, from], [now, to]], "stroke:currentColor;stroke-dasharray:3 3"]] : [])], across, [from, to, tidy, true]);
        curves.forEach((each, k) => numbers.push([`${each.name}: loss at ${tidy(until)}`, tidy(points[k].filter((p) => p[0] <= until).at(-1)?.[1] ?? NaN)]));
      }
      const wrong = taus.findIndex((t, k) => t < 0 && k < step), told = missed.map(([v]) => `update ${versions.get(v)}`), at = wrong < 0 ? step - 1 : wrong;
      const say = shown ? name(at) + (wrong < 0 && told[0] ? `; it missed ${told.slice(0, 6).join(", ")}${told[6] ? " and more" : ""}` : "") + "." : "Nothing was applied yet.";
      return { svg, height: base + 26, numbers, say, table: [["update", "worker", "read", "applied", "staleness"], ...updates.slice(0, step).map((u, k) => [k, u[0], u[1], u[5] ? "dropped" : u[2], taus[k]])], data: { updates: updates.length } };
    },
  };
}
