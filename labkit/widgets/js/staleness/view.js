// The staleness explorer: a parameter server and its workers, how stale their gradients are, and what that costs.

import { stripes } from "../figure/markup.js";
import { most, sum } from "../figure/numbers.js";
import { choice, powers, slider } from "../figure/sliders.js";
import { bytes, percent } from "../figure/units.js";
import { histogram, lossCurves, lossPanel, normsPanel, stems, tidy } from "./panels.js";
import { Position } from "./position.js";
import { chosenMessages, rowOf, serverRow, workerRow } from "./rows.js";
import { losses, simulate } from "./server.js";

const POLICIES = ["sync", 0, 1, 2, 4, 8, "delay 2", "delay 4", "delay 8", "async"];
const COMPARED = ["sync", 2, "async"];
const MOST_TOLD = 6;

function policyName(bound) {
  if (bound === "sync") return "synchronous";
  if (bound === "async") return "asynchronous";
  return bound >= 0 ? `≤ ${bound} ahead` : bound;
}

function simulated(values, bound) {
  const updates = simulate({ ...values, bound }, bound === values.bound ? 60 : 240);
  return {
    name: policyName(bound),
    updates,
    losses: losses(updates, values),
    timed: true,
    bound: bound === "sync" ? 0 : bound,
  };
}

/** Every run on the common axis; the first of those that are simulated is the one that the sliders choose. */
function allRuns(data, values) {
  return data.runs ?? [...new Set([values.bound, ...COMPARED])].map((bound) => simulated(values, bound));
}

function modelSliders(data) {
  return [
    choice("bound", "policy", data.bound, POLICIES, policyName),
    choice("drop", "drop if staler than", data.drop, ["–", 0, 1, 2, 4, 8]),
    slider("workers", "workers", data.workers, 1, 8),
    slider("straggler", "worker 0 is slower by", data.straggler, 1, 8, String, 0.5),
    choice("law", "times", data.law, ["equal", "±25 %", "exponential"]),
    slider("delay", "network delay", data.delay, 0, 1, String, 0.05),
    slider("seed", "seed", data.seed, 0, 20),
    slider("lr", "learning rate", data.lr, 0.1, 4, (rate) => Number(rate).toFixed(1), 0.1),
    choice("divided", "divided by", data.divided, ["nothing", "workers", "staleness"]),
  ];
}

function slidersOf(data) {
  const { runs } = data;
  const names = runs?.map((run) => run.name);
  const sliders = runs ? [] : modelSliders(data);
  if (runs?.length > 1) sliders.push(choice("run", "run", names[0], names));
  if (data.size) sliders.push(powers("size", "weights", data.size, 1e3, 1e12, bytes));
  if (!runs || runs.some((run) => run.losses)) {
    sliders.push(choice("against", "loss against", "time", ["time", "updates"]));
  }
  return sliders;
}

/** What a value may be at most, with a tick or a cross: [shown, whether it is exceeded]. */
function held(value, limit, isKnown, words = "") {
  if (!(limit >= 0 && isKnown)) return [value ?? "–"];
  const shown = value ?? "–";
  return [`${shown} ≤ ${words}${limit} ${shown <= limit ? "✓" : "✗"}`, shown > limit];
}

/** [limit of the staleness under a policy, its formula]. */
function limitOf({ run, values, within, count }) {
  const { drop } = values;
  if (drop >= 0) return [drop];
  if (values.bound === "sync") return [0];
  if (within) return [within + Math.min(within, count - 1), "d + min(d, N−1) = "];
  return [(count - 1) * (2 * run.bound + 1), "(N−1)(2s+1) = "];
}

function numbersOf(position) {
  const { run, values, done, step, span, workers, ahead } = position;
  const { timed, gaps = [], sent } = run;
  const n = done.length;
  const sorted = [...done].sort((a, b) => a - b);
  const [limit, words] = limitOf(position);
  const working = sum(workers.map(({ busy }) => busy)) / sum(workers.map(({ all }) => all));
  const numbers = [
    ["updates", n],
    ["per unit of time", timed && span ? (n / span).toFixed(2) : "–"],
    ["mean staleness", n ? (sum(done) / n).toFixed(2) : "–"],
    ["95 %", sorted[Math.ceil(0.95 * n) - 1] ?? "–"],
    ["most", ...held(sorted.at(-1), limit, n, words)],
    ["waiting", timed ? percent(1 - working) : "–"],
    ["furthest ahead of the slowest", ...held(most(ahead), run.bound, n)],
    ["dropped", `${step - n} of ${step}`],
  ];
  if (gaps.length) numbers.push(["missing from the record", gaps.map(([, lost]) => lost).join(", "), 1]);
  if (values.size) numbers.push(["pulled and pushed", bytes(2 * step * values.size)]);
  if (sent) numbers.push(["sent to the server", bytes(sent)]);
  return numbers;
}

/** The loss of each run where the first of them ends. */
function lossNumbers({ shown, points, until }) {
  return shown.map(({ name }, k) => {
    const last = points[k].findLast(([at]) => at <= until)?.[1] ?? Number.NaN;
    return [`${name}: loss at ${tidy(until)}`, tidy(last)];
  });
}

const capital = (words) => words[0].toUpperCase() + words.slice(1);

/** How old the gradients are that were applied. */
function claim({ run, done }) {
  if (!done.length) return `${capital(run.name)}: nothing applied yet`;
  const mean = (sum(done) / done.length).toFixed(1);
  return `${capital(run.name)}: a gradient is ${mean} updates old on average, ${most(done)} at most`;
}

/** The chosen update and which it missed; before it the first that was applied before it was read. */
function sentence(position) {
  const { shown, taus, step, missed, versions } = position;
  if (!shown) return "Nothing applied yet.";
  const wrong = taus.findIndex((tau, k) => tau < 0 && k < step);
  if (wrong >= 0) return `${position.name(wrong)}.`;
  const lost = missed.map(([version]) => `update ${versions.get(version)}`);
  const more = lost.length > MOST_TOLD ? " and more" : "";
  const told = lost.length ? `; it missed ${lost.slice(0, MOST_TOLD).join(", ")}${more}` : "";
  return `${position.name(step - 1)}${told}.`;
}

function tableOf({ updates, taus, step }) {
  const rows = updates.slice(0, step).map(([worker, read, applied, , , dropped], k) => {
    return [k, worker, read, dropped ? "dropped" : applied, taus[k]];
  });
  return [["update", "worker", "read", "applied", "staleness"], ...rows];
}

function draw(data, every, values, step, width) {
  const run = every[chosen(data, values)];
  const position = new Position(run, data.runs, values, step, width);
  let base = rowOf(position.count) + 76;
  let svg = stripes(1) + serverRow(position);
  svg += position.workers.map((worker) => workerRow(position, worker)).join("");
  svg += chosenMessages(position) + stems(position, base) + histogram(position, base);
  const numbers = numbersOf(position);
  if (values.room && !(data.runs?.length > 1)) return drawn(position, svg, base, numbers);
  const norms = normsPanel(position, base);
  svg += norms.svg;
  base += norms.height;
  const curves = lossCurves(position, every, data.runs);
  if (curves) {
    const panel = lossPanel(position, base, data.runs, curves);
    svg += panel.svg;
    base += panel.height;
    numbers.push(...lossNumbers(curves));
  }
  return drawn(position, svg, base, numbers);
}

const drawn = (position, svg, base, numbers) => ({
  svg,
  height: base + 26,
  numbers,
  title: claim(position),
  say: sentence(position),
  table: tableOf(position),
  data: { updates: position.run.updates.length },
});

/** The place of the run that is chosen. */
function chosen({ runs }, { run }) {
  return Math.max(0, runs?.findIndex(({ name }) => name === run) ?? 0);
}

/** @returns {import("../figure/explorer.js").View} */
export function stalenessView(data) {
  return {
    title: "Staleness",
    source: data.source,
    begin: 1e9,
    stepLabel: "update",
    help: "Click an update.",
    sliders: slidersOf(data),
    pick: ({ mark }) => Number(mark.closest("[data-pick]").dataset.pick) + 1,
    steps: (values) => allRuns(data, values)[chosen(data, values)].updates.length,
    draw: (values, step, width) => draw(data, allRuns(data, values), values, step, width),
  };
}
