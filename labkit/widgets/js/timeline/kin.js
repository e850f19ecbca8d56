// Events that are one thing on several ranks: a collective, a message, a microbatch.

import { lowerBound } from "./search.js";

const MICROBATCH = /^[FBIW](\d+)(\.\d+)?$/;

const calls = new WeakMap(); // by run: the events of each collective

/** This event and all that are one thing with it. */
export function kinOf(run, event) {
  const messages = (run.flowsOf.get(event) ?? []).flatMap((f) => [run.flow_from[f], run.flow_to[f]]);
  return new Set([event, ...messages, ...callOf(run, event), ...microbatchOf(run, event)]);
}

/** The calls of all ranks that make up the collective that an event is part of. */
function callOf(run, event) {
  const { call_event: events = [], call_of: of } = run;
  const at = lowerBound(events, 0, events.length, event);
  if (events[at] !== event) return [];
  if (!calls.has(run)) {
    const known = new Map();
    events.forEach((each, k) => known.set(of[k], [...(known.get(of[k]) ?? []), each]));
    calls.set(run, known);
  }
  return calls.get(run).get(of[at]);
}

/** What is done with the microbatch that an event names. */
function microbatchOf({ label, labels }, event) {
  const number = MICROBATCH.exec(labels[label[event]][0])?.[1];
  if (number === undefined) return [];
  const isOf = labels.map(([name]) => MICROBATCH.exec(name)?.[1] === number);
  const found = [];
  label.forEach((each, k) => isOf[each] && found.push(k));
  return found;
}
