// The server's versions and the workers' gradients over time.

import { FRESH, STALE, between, hue } from "../figure/colours.js";
import { bar, faint, line, rect, text } from "../figure/markup.js";

/** Where the rows lie. */
export const TOP = 34;
const TALL = 25;
const WORK = 19; // pixels of a bar
export const rowOf = (worker) => TOP + 26 + worker * TALL;

const DROPPED = hue("blocked");

export const tint = (tau, highest) => between(FRESH, STALE, tau / highest);

/** A line at a time. */
export const upright = (position, time, from, to, kind, more) =>
  line(position.x(time), from, position.x(time), to, kind, more);

/** Names of versions, where they have room; those of the chosen gradient first. */
function versionNames(position) {
  const { shown, updates, versions } = position;
  const names = shown
    ? [
        [shown[4], shown[2], "bold small"],
        [shown[3], shown[1], "bold small"],
      ]
    : [];
  for (const [version, k] of versions) names.push([updates[k][4], version, "tiny grey"]);
  const taken = [];
  return names.map(([time, version, kind]) => {
    const x = position.x(time);
    if (taken.some((other) => Math.abs(other - x) < 27)) return "";
    taken.push(x);
    return text(x, TOP - 12, `v${version}`, `${kind} middle`);
  });
}

/** A tick for each version; those that the chosen gradient missed are lit. */
function versionTicks(position) {
  const { versions, missed, updates } = position;
  const lost = new Set(missed.map(([version]) => version));
  return [...versions].map(([version, k]) => {
    const isLit = lost.has(version);
    const looks = { style: isLit && "stroke-width:3.5", opacity: position.isLater(k) && 0.25 };
    const hooks = { "data-version": version, "data-missed": Number(isLit) };
    const from = TOP - (isLit ? 9 : 3);
    return upright(position, updates[k][4], from, TOP + 11, isLit ? "now" : "rule", { ...looks, ...hooks });
  });
}

/** Numbers that are missing from a record. */
function gapTicks(position) {
  return (position.run.gaps ?? []).map(([time, lost]) => {
    const looks = { style: "stroke:var(--bad);stroke-width:3", "data-gap": lost };
    return upright(position, time, TOP - 9, TOP + 17, "", looks) + text(position.x(time) + 4, TOP - 2, "!", "bad bold");
  });
}

/** Pull and push of every gradient. */
function messages(position) {
  return position.updates.map(([worker, , , start, end], k) => {
    const pull = upright(position, start, TOP + 11, rowOf(worker), "soft");
    return faint(position.isLater(k), pull + upright(position, end, TOP + 11, rowOf(worker), "soft"));
  });
}

export function serverRow(position) {
  const { left, wide } = position;
  const names = versionNames(position);
  const ticks = versionTicks(position);
  const chosen = names.splice(0, position.shown ? 2 : 0);
  return (
    text(0, TOP + 8, "server") +
    line(left, TOP + 4, left + wide, TOP + 4) +
    chosen.join("") +
    ticks.map((tick, k) => tick + names[k]).join("") +
    gapTicks(position).join("") +
    messages(position).join("")
  );
}

/** One gradient: its messages thin, its work coloured by staleness. */
function gradient(position, { update, k, pulled, pushed }, y) {
  const { late, taus, step, highest } = position;
  const [, , , start, end, dropped] = update;
  const thin = (from, to, meaning) => {
    if (!late || to <= from) return "";
    return rect(position.x(from), y + 7, position.x(to) - position.x(from), 5, { fill: hue(meaning) });
  };
  const hooks = { "data-pick": k, "data-update": k, "data-tau": taus[k], "data-dropped": Boolean(dropped) && 1 };
  const looks = { class: kindOf(taus[k], k === step - 1), ...hooks };
  const fill = dropped ? DROPPED : tint(taus[k], highest);
  const width = position.x(pushed) - position.x(start);
  const words = dropped ? "✗" : taus[k];
  const work = bar(position.x(start), y, width, WORK, fill, words, looks, position.name(k));
  return thin(pulled, start, "receive") + thin(pushed, end, "send") + work;
}

function kindOf(tau, isChosen) {
  if (tau < 0) return "bad"; // read after it was applied: the record is wrong
  return isChosen ? "now" : "thin";
}

/** A worker: the version it holds, when it waits, its gradients. */
export function workerRow(position, { worker, turns, held }) {
  const y = rowOf(worker);
  const { left, end } = position;
  let svg = text(0, y + 14, `worker ${worker}`);
  svg += text(left - 8, y + 14, `v${held}`, "small end grey", { "data-held": worker });
  for (const turn of turns) {
    const isLater = position.isLater(turn.k);
    if (turn.pulled > turn.before + 1e-9 * end) {
      const looks = { fill: "url(#lk-idle1)", "data-waits": worker };
      const wide = position.x(turn.pulled) - position.x(turn.before);
      svg += faint(isLater, rect(position.x(turn.before), y, wide, WORK, looks, "waits"));
    }
    svg += faint(isLater, gradient(position, turn, y));
  }
  return svg;
}

/** Pull and push of the chosen gradient, over all others. */
export function chosenMessages(position) {
  const { shown } = position;
  if (!shown) return "";
  const [worker, , , start, end] = shown;
  const pull = upright(position, start, TOP + 11, rowOf(worker), "now", { "stroke-dasharray": "2 2" });
  return pull + upright(position, end, rowOf(worker), TOP + 11, "now");
}
