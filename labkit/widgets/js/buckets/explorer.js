// The bucket explorer: gradients, the buckets they travel in, and what of their all-reduces is exposed.

import { least, most, range, sum } from "../figure/numbers.js";
import { choice, linkSliders, powers, slider } from "../figure/sliders.js";
import { percent, seconds, secondsOf } from "../figure/units.js";
import { TORCHS, bestOf, beyond, capOf } from "./caps.js";
import { picture } from "./picture.js";
import { GRAPHS, MEMORY, lost, mib, part } from "./plan.js";
import { told } from "./rows.js";
import { stepOf } from "./step.js";

const FIRSTS = [0, 2 ** 17, 2 ** 20];
const ONE_BUCKET = 1e18;
const WORTH = 0.005; // of a step: what saves less saves nothing in words

function capText(size) {
  if (!size) return "same as the others";
  return size < 1e15 ? mib(size) : "one bucket";
}

/** What can be stacked under the step: [[change of the sliders' values, its name]] by name. */
function stacksOf(data) {
  const changes = (key, options, name = (value) => value) => options.map((value) => [{ [key]: value }, name(value)]);
  const stacks = {
    nothing: [],
    caps: changes(
      "cap",
      data.compare.map((cap) => cap ?? ONE_BUCKET),
      capText,
    ),
    hooks: changes("hook", Object.keys(data.hooks)),
  };
  if (data.plans) return stacks;
  const steps = changes("turn", [1, 2, 3], (turn) => `step ${turn}`);
  return { ...stacks, "DDP's graph": changes("graph", GRAPHS), "DDP's steps": steps };
}

function slidersOf(data, stacks) {
  const sliders = [choice("cap", "bucket cap", data.cap, data.caps, capText)];
  if (!data.plans) {
    const firsts = [...new Set([...FIRSTS, data.first])].sort((a, b) => a - b);
    sliders.push(
      choice("first", "first bucket", data.first, firsts, capText),
      choice("graph", "DDP's graph", data.graph, GRAPHS),
      slider("turn", "step", data.turn, 1, 3, (turn) => turn + (turn > 2 ? " and later" : "")),
    );
  }
  if (!data.plans && !data.used) {
    sliders.push(choice("registered", "registered", "as used", ["as used", "backwards"]));
  }
  const late = (share) => (share ? `${Number(share.toPrecision(2))} × backward` : "0 ms");
  sliders.push(
    choice("hook", "hook", data.hook, Object.keys(data.hooks)),
    choice("compare", "stack", data.compared, Object.keys(stacks)),
    powers("backward", "backward", data.backward, 1e-4, 10, seconds),
    slider("late", "a rank is late by", data.late, 0, 1, late, 0.05),
    slider("ranks", "ranks", data.ranks, 2, 64),
    ...linkSliders(data),
  );
  return sliders;
}

/** What a hook costs and loses. */
function hookNumbers(data, { hook }) {
  const numbers = [];
  if (hook.passes) {
    const label = `compression: ${hook.passes} passes over memory at 1.6 TB/s`;
    numbers.push([label, seconds((hook.passes * sum(data.sizes)) / MEMORY)]);
  }
  if (!data.norms) return numbers;
  const lossy = Object.entries(data.hooks).filter(([, { errors }]) => errors);
  const all = range(data.sizes.length);
  return [...numbers, ...lossy.map(([name, { errors }]) => [`error of ${name}`, part(lost(errors, data.norms, all))])];
}

function numbersOf({ data, now, stacked }) {
  const { plan, times, comm, exposed } = now;
  const measured = Object.entries(data.measured ?? {});
  return [
    ["gradients", data.sizes.length],
    ["buckets", plan.filter((bucket) => bucket.length).length],
    ["bytes", mib(sum(times.map((each) => each.bytes)))],
    ["compute", seconds(now.compute)],
    ["communication", seconds(comm)],
    ["exposed", seconds(exposed)],
    ["overlapped", percent(now.overlapped)],
    ["skew", seconds(now.skew)],
    ["waits for the slowest rank", seconds(now.waits)],
    ["step", seconds(now.whole)],
    ["no overlap", seconds(now.alone)],
    ["at least max(compute, comm)", seconds(most([now.compute, comm]))],
    ...stacked.map(([name, step]) => [name, seconds(step.whole)]),
    ...hookNumbers(data, now),
    ...measured.map(([label, value]) => [`this run: ${label}`, typeof value === "string" ? value : seconds(value)]),
  ];
}

/** How much of the communication backward hides, and what the step takes beyond computing; what is wrong. */
function claim({ fault, now: { plan, skew, compute, whole, comm, hidden } }) {
  if (fault) return `✗ ${fault}`;
  const many = `${plan.length} bucket${plan.length === 1 ? "" : "s"}`;
  const rest = `${secondsOf(whole - compute, whole)} is ${beyond(skew)}`;
  return `${many}: backward hides ${hidden} of ${secondsOf(comm, whole)} of communication; ${rest}`;
}

/** Which cap is best, and what a step takes then; how much less that is than under this one and torch's. */
function advice(scene) {
  const { data, values, curve, best } = scene;
  const whole = seconds(least(curve));
  if (best < 0) return `Under each of these caps a step takes ${whole}`;
  const savings = [data.caps.indexOf(values.cap), data.caps.length].flatMap((at) => {
    const saved = 1 - curve[best] / curve[at];
    return saved >= WORTH && saved < 1 ? [`${part(saved)} less than with ${capOf(data, at)}`] : [];
  });
  return [`Of these caps ${bestOf(scene)}: a step takes ${whole}`, ...savings].join(", ");
}

/** Words of which no line ends between a number and its unit. */
const unbroken = (words) => words.replace(/(\d) /g, "$1\u00a0");

/** What is wrong with the plan; else the bucket that was sent last; in the end what the step costs. */
function sentence(scene, step) {
  const { fault, now } = scene;
  const { plan, times, begin, whole } = now;
  if (fault) return fault;
  if (step && step < plan.length) return told(times[step - 1], begin);
  return `${claim(scene)}. The step takes ${seconds(whole)}. ${advice(scene)}.`;
}

function tableOf({ now, run }) {
  const { plan, times, begin } = now;
  const model = times.map((each, k) => {
    const when = [each.ready, each.start, each.end].map((time) => seconds(begin + time));
    return [k, plan[k].join(" ") || "which were used", mib(each.bytes), ...when];
  });
  const ran = run.flatMap(([label, , sent]) =>
    sent.map(([size, ready, , start, end], k) => {
      return [`run, ${label}: ${k}`, "", mib(size), seconds(ready), seconds(start), seconds(end)];
    }),
  );
  return [["bucket", "parameters", "bytes", "ready", "sent", "arrived"], ...model, ...ran];
}

/** The cap under which bucket k ends nearest to a part of backward. */
function capAt(data, plan, k, share) {
  const before = plan
    .slice(0, k)
    .flat()
    .map((parameter) => data.sizes[parameter]);
  const wanted = most([share * sum(data.sizes) - sum(before), 1]);
  const away = data.caps.map((cap) => Math.abs(Math.log(cap / wanted)));
  return data.caps[away.indexOf(least(away))];
}

/** What a drag of the end of bucket k does: the cap becomes that under which it ends there. */
function followed(data, values, k, seen) {
  const { plan } = stepOf(data, values);
  return ({ x }) => {
    values.cap = capAt(data, plan, k, seen().shareAt(x));
  };
}

/** What is drawn for these values. */
function sceneOf(data, stacks, values, isFaded) {
  const all = [...data.caps.map((cap) => ({ cap })), ...(data.plans ? [] : [TORCHS])];
  const ways = all.map((each) => stepOf(data, { ...values, ...each }));
  const faults = data.faults ?? [];
  const curve = ways.map(({ whole }, k) => (faults[k] ? Infinity : whole)); // a wrong plan is no way to save time
  const isOne = new Set(curve.map(seconds)).size < 2;
  return {
    data,
    values,
    now: stepOf(data, values),
    fault: faults[data.caps.indexOf(values.cap)],
    sizes: data.sizes,
    run: data.run ?? [],
    stacked: stacks[values.compare].map(([change, name]) => [name, stepOf(data, { ...values, ...change })]),
    ways,
    curve,
    best: isOne ? -1 : curve.indexOf(least(curve)),
    isFaded,
  };
}

/** @returns {import("../figure/explorer.js").View} */
export function bucketExplorer(data) {
  const stacks = stacksOf(data);
  let lit; // the bucket under the pointer
  let seen; // the picture that was drawn last
  return {
    title: "Buckets",
    source: data.source,
    begin: 1e9,
    stepLabel: "replay",
    told: 0, // the picture and its title say what matters
    isLed: true, // by its controls
    main: ["cap", "bandwidth", "late"],
    sliders: slidersOf(data, stacks),
    steps: (values) => stepOf(data, values).plan.length,
    stepName: (values, step) => `${step} of ${stepOf(data, values).plan.length} buckets sent`,
    hover({ mark }) {
      const before = lit;
      lit = mark.closest("[data-link]")?.dataset.link;
      return before !== lit;
    },
    grab({ mark }, values) {
      const edge = mark.closest("[data-edge]");
      return edge && followed(data, values, Number(edge.dataset.edge), () => seen);
    },
    draw(values, step, width) {
      const isFaded = (k, link, isMain) => (isMain && k >= step) || (lit && lit !== link + k);
      const scene = sceneOf(data, stacks, values, isFaded);
      seen = picture({ ...scene, advice: unbroken(advice(scene)) }, width);
      return {
        ...seen,
        numbers: numbersOf(scene),
        title: unbroken(claim(scene)),
        say: sentence(scene, step),
        isNews: step < scene.now.plan.length, // what is wrong stands over the picture
        table: tableOf(scene),
        data: { buckets: scene.now.plan.length },
      };
    },
  };
}
