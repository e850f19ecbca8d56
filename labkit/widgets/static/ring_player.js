import { ARROW, axis, between, bytes, choice, ink, inkOn, line, linkSliders, most, powers, range, rect, seconds, slider, speed, tag, text } from "./figure.js";

const mod = (a, n) => ((a % n) + n) % n;
const count = (mask) => mask.toString(2).replaceAll("0", "").length;
const ranksOf = (mask, n) => range(n).filter((r) => (mask >> r) & 1);

/** The ring all-reduce of n ranks: for each step sends [src, chunk, dst, into, wrong] and writes [rank, chunk, mask, wrong]. More chunks than ranks take turns. */
export function ringSteps(n, chunks = n) {
  const turns = Math.ceil(chunks / n);
  return range(2 * (n - 1) * turns).map((at) => {
    const step = { sends: [], writes: [] }, s = Math.floor(at / turns);
    for (let r = 0; r < n; r++) {
      const first = s < n - 1 ? mod(r - s, n) : mod(r + n - s, n), chunk = first + (at % turns) * n, dst = (r + 1) % n;
      let mask = 0;
      if (chunk >= chunks) continue;
      for (let k = 0; k < Math.min(s + 2, n); k++) mask |= 1 << mod(first + k, n);
      step.sends.push([r, chunk, dst, chunk, 0]);
      step.writes.push([dst, chunk, mask, 0]);
    }
    return step;
  });
}

/** state[rank][chunk] = [mask of contributions, wrong] before step `upto`. */
export function stateBefore(steps, n, upto, chunks = n) {
  const state = range(n).map((r) => range(chunks).map(() => [1 << r, 0]));
  for (const step of steps.slice(0, upto)) for (const [r, c, mask, wrong] of step.writes) state[r][c] = [mask, wrong];
  return state;
}

/** When each transfer is under way: [src, dst, step, start, end]; a step begins when both ranks have ended the one before. */
export function transferTimes(steps, n, { size, latency, bandwidth, slow, chunks = n }) {
  const ready = Array(n).fill(0), times = [];
  steps.forEach((step, s) => {
    const ends = [...ready];
    for (const [src, , dst] of step.sends) {
      const start = Math.max(ready[src], ready[dst] ?? 0);
      const end = start + latency + ((src === slow ? 4 : 1) * size) / chunks / bandwidth;
      times.push([src, dst, s, start, end]);
      for (const rank of [src, dst]) if (rank in ends) ends[rank] = Math.max(ends[rank], end);
    }
    ends.forEach((end, r) => (ready[r] = end));
  });
  return times;
}

export const ringSeconds = (n, { size, latency, bandwidth, chunks = n }) => 2 * (n - 1) * Math.ceil(chunks / n) * (latency + size / chunks / bandwidth);

const named = (c) => (c < 0 ? "?" : `c${c}`);
const met = (c, into) => (into >= 0 && into !== c ? `${named(into)}? ${named(c)}` : named(c));
const fillOf = (mask, n) => between("#dbe9f6", "#08306b", n > 1 ? (count(mask) - 1) / (n - 1) : 1);

function wheel(state, sends, n, side, step) {
  const chunks = state[0].length, middle = side / 2, full = side >= 330 && n <= 8, outer = middle - (full ? 66 : 38), pitch = Math.min((outer - 26) / chunks, 34), cell = Math.min(pitch - (pitch > 9 ? 3 : 1), (2 * Math.PI * (outer - pitch * (chunks - 1))) / n - 3);
  const angle = (r) => (2 * Math.PI * r) / n - Math.PI / 2, radius = (c) => outer - c * pitch;
  const at = (r, c) => [middle + radius(c) * Math.cos(angle(r)), middle + radius(c) * Math.sin(angle(r))];
  const parts = state.map((chunks, r) => {
    const far = outer + cell / 2 + 6, [dx, dy] = [Math.cos(angle(r)), Math.sin(angle(r))];
    const side = dx > 0.3 ? "" : dx < -0.3 ? " end" : " middle";
    return text(middle + far * dx, middle + far * dy + 4 + 5 * dy, full ? `rank ${r}` : n > 8 ? r : `r${r}`, "bold" + side + (n > 8 ? " small" : "")) + chunks.map(([mask, wrong], c) => {
      const [cx, cy] = at(r, c), fill = fillOf(mask, n), whole = count(mask) === n && !wrong;
      const square = rect(cx - cell / 2, cy - cell / 2, cell, cell, { fill, class: wrong ? "bad" : "edge", rx: 2, "data-step": step, "data-rank": r, "data-chunk": c, "data-count": count(mask) },
        `rank ${r}, chunk ${c}: contributions of ranks ${ranksOf(mask, n).join(", ")}${wrong ? "; wrong" : whole ? "; complete" : ""}`);
      const inner = whole && cell > 9 ? rect(cx - cell / 2 + 2, cy - cell / 2 + 2, cell - 4, cell - 4, { fill: "none", stroke: inkOn(fill), rx: 1 }) : "";
      return square + inner + (cell > 10 ? text(cx, cy + 4, wrong ? "✗" : count(mask), "middle " + (cell > 16 ? "small" : "tiny"), ink(fill)) : "");
    }).join("");
  });
  const arrows = sends.map(([src, sent, dst, into, wrong]) => {
    const chunk = Math.max(sent, 0);
    const gap = (cell / 2 + 3) / radius(chunk), turn = mod(dst - src, n) === 1 ? 1 : mod(src - dst, n) === 1 ? -1 : 0;
    const point = (a, c) => `${(middle + radius(c) * Math.cos(a)).toFixed(1)} ${(middle + radius(c) * Math.sin(a)).toFixed(1)}`;
    const target = into < 0 ? chunk : into, end = target !== chunk ? "L" : turn ? `A${radius(chunk)} ${radius(chunk)} 0 0 ${turn > 0 ? 1 : 0}` : "L";
    const d = `M${point(angle(src) + turn * gap, chunk)}${end} ${point(angle(dst) - turn * gap * 1.4, target)}`;
    const half = angle(src) + (turn * Math.PI) / n, far = radius(chunk) + 9 * (turn || 1);
    const name = n > 8 || !turn ? "" : text(middle + far * Math.cos(half), middle + far * Math.sin(half) + 4, met(sent, into), "middle small" + (wrong ? " bad" : " bold"));
    return tag("path", { d, class: wrong ? "bad" : "now", "marker-end": "url(#lk-arrow)", "data-send": `${src}>${dst}:${sent}` }) + name;
  });
  return ARROW + parts.join("") + arrows.join("");
}

function sendGrid(steps, n, now, width, split) {
  const left = 52, gap = split > 0 && split < steps.length ? 8 : 0, wide = Math.min((width - left - gap) / Math.max(steps.length, 1), 64), tall = n > 8 ? 17 : 25;
  const x = (s) => left + s * wide + (s >= split ? gap : 0);
  const rows = range(n).map((r) => text(0, 30 + r * tall + tall / 2, `rank ${r}`)).join("");
  const cells = steps.map((step, s) => {
    const mine = range(n).map((r) => {
      const sends = step.sends.filter((send) => send[0] === r);
      const wrong = sends.some((send) => send[4]), state = step.before?.[r];
      const words = sends.map(([, c, , into]) => (wide > 24 ? met(c, into) : c)).join(" ");
      const mask = sends.length && state ? state[sends[0][1]]?.[0] ?? 0 : 0, fill = sends.length ? fillOf(mask, n) : "none";
      return rect(x(s) + 1, 26 + r * tall, wide - 2, tall - 2, { fill, class: wrong ? "bad" : "edge", "data-grid": `${s}:${r}`, "data-step": s }, sends.map(([, c, dst, into, bad]) => `step ${s}: rank ${r} sends ${named(c)} to rank ${dst}` + (bad ? `; expected ${named(into)}, got ${named(c)}` : "")).join("; ")) +
        text(x(s) + wide / 2, 30 + r * tall + tall / 2, wide < 12 && (state?.length > 10 || wide < 9) ? "" : words, "middle " + (wide > 30 ? "small" : "tiny"), fill !== "none" && ink(fill));
    });
    return mine.join("") + text(x(s) + wide / 2, 19, wide < 15 && s !== now && (s % 5 || Math.abs(s - now) < 2) ? "" : s, "middle small");
  });
  const frame = now < steps.length ? rect(x(now), 4, wide, 24 + n * tall, { fill: "none", class: "now", rx: 3 }) : "";
  const halves = split > 0 && split < steps.length ? [0, 3].map((d) => line(x(split) - 6 + d, 22, x(split) - 6 + d, 26 + n * tall)).join("") : "";
  return { svg: text(0, 19, "step", "small grey") + rows + cells.join("") + frame + halves, height: 34 + n * tall };
}

function lanes(times, model, n, now, width, latency) {
  const left = 52, end = most([1e-12, ...[...times, ...model].map((t) => t[4])]), scale = (width - left - 8) / end, tall = n > 8 ? 11 : 17;
  const place = ([src, dst, s, from, to], attributes, title) => rect(left + from * scale, 22 + src * tall, Math.max((to - from) * scale, 1), tall - 4, attributes, title);
  const bars = times.map((t) => place(t, { fill: t[2] === now ? "#d55e00" : "#0072b2", class: "thin" }, `step ${t[2]}, rank ${t[0]} to ${t[1]}: ${seconds(t[4] - t[3])}`) +
    (model.length ? "" : place([t[0], 0, 0, t[3], t[3] + latency], { fill: "#b8b8b8", class: "thin" })));
  const outline = model.map((t) => place(t, { fill: "none", class: "rule", "stroke-dasharray": "3 2" }));
  const names = range(n).map((r) => text(0, 22 + r * tall + tall / 2 + 1, `${r} → ${(r + 1) % n}`, tall < 12 ? "tiny" : "small"));
  const legend = model.length ? "links; filled: this run, dashed: the model" : "links; grey: latency, blue: bytes, orange: this step";
  return { svg: text(0, 12, legend, "small grey") + names.join("") + bars.join("") + outline.join("") + axis(left, 26 + n * tall, width - left - 8, end, seconds), height: 50 + n * tall };
}

export function ringPlayer(data) {
  const played = ({ n, chunks }, c = chunks || n) => prepare(data.played?.[n] ?? { steps: ringSteps(n, c), faults: [] }, n, c);
  function prepare({ steps, faults }, n, chunks) {
    const own = steps.map((step, s) => ({ ...step, before: stateBefore(steps, n, s, chunks) }));
    const split = own.findIndex((step, s) => s > 0 && step.sends.some(([src, c]) => count(step.before[src][c]?.[0] ?? 0) === n));
    return { steps: own, faults, split };
  }
  const sizes = data.played ? Object.keys(data.played).map(Number) : range(15).map((k) => k + 2);
  return {
    title: data.title, source: data.source, begin: 0,
    sliders: [
      ...(sizes.length > 1 ? [choice("n", "ranks", data.n, sizes)] : []),
      ...(data.played ? [] : [slider("chunks", "chunks", data.chunks, 0, 16, (c) => c || "N")]),
      ...(data.times ? [] : [powers("size", "tensor", data.size, 1e3, 1e10, bytes)]),
      ...linkSliders(data),
      slider("slow", "slow link (¼ speed)", -1, -1, most(sizes) - 1, (r) => (r < 0 ? "none" : `${r} →`)),
    ],
    steps: (values) => played({ n: data.n, ...values }).steps.length,
    stepName: (values, step) => (step === 0 ? "start" : `after step ${step - 1}`),
    draw(given, step, width) {
      const values = { n: data.n, size: data.size, ...given }, { n } = values, { steps, faults, split } = played(values), chunks = (values.chunks ||= n);
      const state = stateBefore(steps, n, step, chunks), side = Math.min(Math.max(0.4 * width, 270), 400, width);
      const besides = width >= 560, rest = besides ? width - side - 20 : width;
      const model = transferTimes(steps, n, values), real = data.times ?? [];
      const grid = sendGrid(steps, n, step, rest, split), lane = lanes(real.length ? real : model, real.length ? model : [], n, step, rest, values.latency);
      const now = step < steps.length ? steps[step].sends : [];
      const [gx, gy] = besides ? [side + 20, 0] : [0, side + 10];
      const svg = wheel(state, now, n, side, step) + tag("g", { transform: `translate(${gx} ${gy})` }, grid.svg + tag("g", { transform: `translate(0 ${grid.height + 10})` }, lane.svg));
      const seen = faults.filter(([s]) => s < step || step === steps.length), total = most([0, ...model.map((t) => t[4])]), formula = ringSeconds(n, values);
      const whole = state.flat().filter(([mask, wrong]) => count(mask) === n && !wrong).length;
      // After the first half every rank owns its chunk and no other; told from then on, of plans that are wrong too.
      const half = Math.ceil(chunks / n) * (n - 1), owners = stateBefore(steps, n, half, chunks).every((each, r) => each.every(([mask, wrong], c) => (count(mask) === n) === (c % n === (r + 1) % n) && !wrong));
      const numbers = [["steps", steps.length], ["sent by a rank", bytes((most(range(n).map((r) => steps.flatMap((s) => s.sends).filter((send) => send[0] === r).length)) / chunks) * values.size)],
        ["time, model", seconds(total)], [chunks === n ? "2(N−1)(α + B/Nβ)" : "2(N−1)⌈C/N⌉(α + B/Cβ)", seconds(formula)], ["algbw", speed(values.size / total)], ["busbw", speed(((2 * (n - 1)) / n) * values.size / total)]];
      if (real.length) numbers.push(["time, this run", seconds(most(real.map((t) => t[4])))]);
      numbers.push(["chunks complete", `${whole} of ${n * chunks}`, step === steps.length && whole < n * chunks]);
      numbers.push(["each rank r owns chunk (r+1) mod N alone", step < half ? `asked after step ${half - 1}` : owners ? "✓" : "✗", step >= half && !owners]);
      const moves = now.map(([src, c, dst, into]) => `${src}→${dst} ${met(c, into)}`).join(", ");
      const say = seen.length ? (seen.find(([s]) => s === step - 1) ?? seen[0])[2] : step === steps.length ? `${whole} of ${n * chunks} chunks are complete.` : `Step ${step}: ${moves}.`;
      return { svg, height: besides ? Math.max(side, grid.height + lane.height + 12) : side + grid.height + lane.height + 20, numbers, say,
        table: [["rank", ...range(chunks).map((c) => `chunk ${c}`)], ...state.map((chunks, r) => [r, ...chunks.map(([mask, wrong]) => `${count(mask)} of ${n}${wrong ? ", wrong" : ""}`)]), ...faults.map((fault) => [`step ${fault[0]}`, fault[2]])],
        data: { whole, faults: faults.length, seen: seen.length } };
    },
  };
}
