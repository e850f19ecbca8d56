// One training step for these positions of the sliders: its buckets, and when everything happens.

import { letterOf } from "../figure/colours.js";
import { least, most, range, sum } from "../figure/numbers.js";
import { bucketTimes, ddpPlan, mib } from "./plan.js";

const DEFAULTS = { first: 0, registered: "as used" };

function usedOrder(data, registered) {
  const all = range(data.sizes.length);
  return data.used ?? (registered === "as used" ? all : all.reverse());
}

function planOf(data, { cap, first, graph, turn, isUntilFull }, used) {
  if (!data.plans) return ddpPlan(data.sizes, cap, first, used, graph, turn, isUntilFull);
  return data.plans[data.caps.indexOf(cap)] ?? [range(data.sizes.length)];
}

/** Communication, what of it no computation hides after backward, and how long rank 0 waits for the slowest before. */
function exposure(times, backward) {
  let over = backward;
  let exposed = 0;
  let waits = 0;
  for (const { start, end } of times) {
    const from = most([over, start]);
    waits += from - over;
    over = most([from, end]);
    exposed += over - from;
  }
  const comm = sum(times.map(({ start, end }) => end - start));
  const overlapped = 1 - exposed / comm || 0;
  const hidden = `${least([Math.round(100 * overlapped), exposed ? 99 : 100])} %`; // all of it only if none is exposed
  return { over, exposed, waits, comm, overlapped, hidden };
}

/** Times count from backward's begin; `begin` is when that is, from the step's begin on. */
export function stepOf(data, chosen) {
  const values = { ...DEFAULTS, graph: data.graph, turn: data.turn, ...chosen };
  const { backward } = values;
  const used = usedOrder(data, values.registered);
  const hook = data.hooks[values.hook];
  const skew = values.late * backward;
  const search = values.graph === "find_unused_parameters" && !data.plans ? data.search : 0;
  const plan = planOf(data, values, used);
  const times = bucketTimes(data.sizes, plan, { ...values, used, hook, skew }).map((each, k) => ({
    ...each,
    name: (plan[k].length ? `bucket ${letterOf(k)}: ` : "which were used: ") + mib(each.bytes),
  }));
  const [forward, optimizer] = [data.forward, data.optimizer].map((part) => (part * backward) / data.backward);
  const begin = forward + search;
  const compute = begin + backward + optimizer;
  const sending = exposure(times, backward);
  const last = most([sending.over, backward + skew]);
  const whole = begin + last + optimizer;
  const alone = compute + skew + sending.comm;
  return {
    plan,
    times,
    used,
    hook,
    skew,
    search,
    forward,
    backward,
    begin,
    optimizer,
    last,
    compute,
    whole,
    alone,
    ...sending,
  };
}
