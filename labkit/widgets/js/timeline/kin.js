// Events that are one thing on several ranks: a collective, a message, a microbatch.

import { once } from "./once.js";
import { lowerBound } from "./search.js";

const MICROBATCH = /^[FBIW](\d+)(\.\d+)?$/;

/** The events of each collective of a run. */
const calls = once(({ call_event: events, call_of: of }) => {
  const known = new Map();
  events.forEach((each, k) => known.set(of[k], [...(known.get(of[k]) ?? []), each]));
  return known;
});

/** This event and all that are one thing with it. */
export function kinOf(run, event) {
  const messages = (run.flowsOf.get(event) ?? []).flatMap((f) => [run.flow_from[f], run.flow_to[f]]);
  return new Set([event, ...messages, ...callOf(run, event), ...microbatchOf(run, event)]);
}

/** The calls of all ranks that make up the collective that an event is part of. */
function callOf(run, event) {
  const { call_event: events = [], call_of: of } = run;
  const at = lowerBound(events, 0, events.length, event);
  return events[at] === event ? calls(run).get(of[at]) : [];
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
