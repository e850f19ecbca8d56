// When every operation of a schedule runs, and what is wrong with its order, in the sentences that Python says.

import { nameOf, needsOf } from "./operations.js";

/** How long each kind lasts; a backward's share tw is that of its W. */
function lasts({ tf, tb, tw }, v) {
  return { F: tf / v, B: tb / v, I: (tb - tb * tw) / v, W: (tb * tw) / v };
}

/** Place operations of every stage as early as their order and their needs allow, until nothing moves. */
function placed(stages, needs, duration, tm) {
  const ends = {};
  const result = stages.map(() => []);
  /** Place the next operation of a stage; false if it must wait. */
  const advance = (s) => {
    const row = result[s];
    const operation = stages[s][row.length];
    if (!operation) return false;
    let start = row.at(-1)?.[2] ?? 0;
    for (const [t, other] of needs(s, operation)) {
      const end = ends[t + nameOf(other)];
      if (end === undefined) return false;
      start = Math.max(start, end + (t === s ? 0 : tm));
    }
    const end = start + duration[operation[0]];
    row.push([operation, start, end]);
    ends[s + nameOf(operation)] ??= end;
    return true;
  };
  for (let moved = true; moved;) {
    moved = false;
    for (let s = 0; s < stages.length; s++) while (advance(s)) moved = true;
  }
  return { result, ends };
}

/** What each stage that stands still waits for first: { s, operation, t, wanted, there }. */
function waiting(stages, result, ends, { needs, has }) {
  return stages.flatMap((operations, s) => {
    const operation = operations[result[s].length];
    if (!operation) return [];
    const there = ([t, other]) => has[t].has(nameOf(other));
    const rank = (need) => 2 * (need[0] !== s) + there(need);
    const open = needs(s, operation).filter(([t, other]) => ends[t + nameOf(other)] === undefined);
    const [first] = open.sort((a, b) => rank(a) - rank(b));
    return [{ s, operation, t: first[0], wanted: first[1], there: there(first) }];
  });
}

/** The first circle of stages that wait for each other; none: []. */
function circleOf(on, numStages) {
  for (let s of Object.keys(on).map(Number)) {
    for (let k = 0; k < numStages; k++) s = on[s];
    if (s === undefined) continue;
    const circle = [s];
    for (let t = on[s]; t !== s; t = on[t]) circle.push(t);
    return circle.sort((a, b) => a - b);
  }
  return [];
}

/** What keeps stages from going on, and the operations that do: what else stands still only follows from them. */
function whyStuck(stages, result, blocked) {
  const missing = [];
  const waits = [];
  const on = {};
  for (const { s, operation, t, wanted, there } of blocked) {
    const here = `Stage ${s} stands at ${nameOf(operation)}`;
    const name = nameOf(wanted);
    if (!there) {
      missing.push(`${here}${t === s ? "" : `, needs ${name} of stage ${t}`}, but stage ${t} has no ${name}.`);
    } else if (t === s) {
      missing.push(`Stage ${s}: ${nameOf(operation)} stands before ${name}.`);
    } else {
      on[s] = t;
      const at = nameOf(stages[t][result[t].length]);
      waits.push(`${here} and waits for ${name} of stage ${t}, which stands at ${at}.`);
    }
  }
  const circle = circleOf(on, stages.length);
  const deadlock = circle.length ? [`Deadlock: stages ${circle.join(" and ")} wait for each other.`] : [];
  const culprits = blocked.filter(({ s, t, there }) => !there || t === s || circle.includes(s));
  return {
    faults: [...missing, ...deadlock, ...waits],
    culprits: culprits.map(({ s, operation }) => s + nameOf(operation)),
  };
}

/** What stands twice, and which forward has no backward. */
function faultsOfLists(stages, has) {
  return stages.flatMap((operations, s) => {
    const names = operations.map(nameOf);
    const seen = new Set();
    const twice = names.filter((name) => seen.size === seen.add(name).size);
    const faults = twice.map((name) => `Stage ${s}: ${name} stands in the list twice.`);
    const isAlone = ([kind, ...of]) => kind === "F" && !["B", "I"].some((back) => has[s].has(nameOf([back, ...of])));
    const [alone] = operations.filter(isAlone).sort((a, b) => a[1] - b[1] || a[2] - b[2]);
    return alone ? [...faults, `Stage ${s}: ${nameOf(alone)} has no backward.`] : faults;
  });
}

/**
 * Place every operation as early as its order and what it needs allow.
 *
 * @param {import("./operations.js").Operation[][]} stages
 * @returns {{
 *   stages: import("./operations.js").Placed[][],
 *   stuck: Array<[stage: number, operation: import("./operations.js").Operation]>,
 *   faults: string[],
 *   blocked: Array<[stage: number, operation: object, ofStage: number, wanted: object]>,
 *   culprits: string[],
 * }}
 */
export function place(stages, { tf = 1, tb = 2, tm = 0, tw = 0.5, vee } = {}) {
  const rules = needsOf(stages, vee);
  const { result, ends } = placed(stages, rules.needs, lasts({ tf, tb, tw }, rules.v), tm);
  const blocked = waiting(stages, result, ends, rules);
  const { faults, culprits } = whyStuck(stages, result, blocked);
  return {
    stages: result,
    stuck: stages.flatMap((operations, s) => operations.slice(result[s].length).map((operation) => [s, operation])),
    faults: [...faults, ...faultsOfLists(stages, rules.has)],
    culprits,
    blocked: blocked.map(({ s, operation, t, wanted }) => [s, operation, t, wanted]),
  };
}
