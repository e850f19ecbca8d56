// Below and beside the rows: staleness over time and counted, norms of compression, loss.

import { strokeOf } from "../figure/colours.js";
import { faint, line, rect, tag, text } from "../figure/markup.js";
import { least, most, range } from "../figure/numbers.js";
import { axis, legend, plot, roomForNames } from "../figure/plot.js";
import { TOP, tint, upright } from "./rows.js";

export const tidy = (time) => String(Number(time.toPrecision(4)));

/** Staleness of every update as a stem, with bounds as lines. */
export function stems(position, base) {
  const { run, values, left, wide, end, highest, isLimited, updates, taus, ahead, step } = position;
  const { drop } = values;
  const scale = most([highest, isLimited && run.bound, Number(drop) || 0]);
  const level = (tau) => base - (56 * Math.max(tau, 0)) / scale;
  const flat = (at, words) => {
    const looks = { "stroke-dasharray": "6 3", "data-bound": at };
    return line(left, level(at), left + wide, level(at), "now", looks) + text(left + wide + 4, level(at) + 4, words);
  };
  const stem = (k) => {
    const x = position.x(updates[k][4]);
    const isLost = updates[k][5];
    const kind = k === step - 1 ? "now" : "rule";
    const dot = { cx: x, cy: level(taus[k]), r: 2.5, fill: "currentColor" };
    const drawn = isLost ? "" : upright(position, updates[k][4], base, level(taus[k]), kind) + tag("circle", dot);
    if (!isLimited) return drawn;
    const dash = ahead[k] > run.bound ? "bad" : "now";
    return drawn + line(x - 4, level(ahead[k]), x + 4, level(ahead[k]), dash);
  };
  return (
    text(0, base, "staleness") +
    (isLimited ? text(0, base - 18, "– ahead", "small grey") + flat(run.bound, "s") : "") +
    (drop >= 0 ? flat(drop, "drop") : "") +
    updates.map((_, k) => faint(position.isLater(k), stem(k))).join("") +
    text(left - 8, level(highest) + 4, highest, "small end") +
    axis(left, base + 4, wide, end, tidy)
  );
}

/** How many updates had which staleness so far. */
export function histogram(position, base) {
  const { done, highest, left, wide } = position;
  const counts = range(highest + 1).map((tau) => done.filter((each) => each === tau).length);
  const peak = most([1, ...counts]);
  const x = left + wide + 40;
  const pitch = Math.min(18, (base - 70 - TOP) / (highest + 1));
  const bars = counts.map((count, tau) => {
    const y = TOP + 4 + tau * pitch;
    const long = (count / peak) * 60;
    const middle = y + pitch / 2 + 2;
    const mark = rect(x, y, long, pitch - 2, { fill: tint(tau, highest), class: "edge" });
    if (pitch <= 10 && tau && tau !== highest) return mark;
    return mark + text(x - 6, middle, tau, "small end") + text(x + 4 + long, middle, count);
  });
  return text(x - 26, TOP - 20, "updates") + text(x - 26, TOP - 6, "by staleness") + bars.join("");
}

/** Lines over the picture's width with their names below: { svg, height }. */
function panel(position, base, tall, title, names, curves, ...scales) {
  const { left, wide, width } = position;
  const isBeside = roomForNames(width) > 0;
  const [entries, height] = isBeside ? ["", 22] : legend(names, base + tall + 72, width);
  const shown = curves.map(([points, style, more, marked], k) => [points, style, more, marked, isBeside && names[k]]);
  const svg = plot(left, base + 52, wide, tall, title, shown, ...scales);
  return { svg: svg + entries, height: tall + 46 + height };
}

/** Norms of each gradient's error and residual, where it was compressed. */
export function normsPanel(position, base) {
  const { run, updates, end } = position;
  if (!run.norms) return { svg: "", height: 0 };
  const curves = Object.entries(run.norms).map(([name, list], k) => {
    return [list.map((value, at) => [updates[at][4], value]), strokeOf(k), { "data-norm": name }];
  });
  const title = "compression: norms of each gradient's error and residual";
  const highest = most(Object.values(run.norms).flat());
  return panel(position, base, 60, title, Object.keys(run.norms), curves, [0, end, tidy], [0, highest, tidy]);
}

/** Losses of runs as points over time or updates, and how far they are compared. */
export function lossCurves(position, every, runs) {
  const shown = every.filter((run) => run.losses);
  if (!shown.length) return undefined;
  const byUpdates = position.values.against === "updates";
  const limit = byUpdates ? 60 : position.end;
  const points = shown.map(({ losses }) =>
    losses.map(([time, updates, loss]) => [byUpdates ? updates : time, loss]).filter(([at]) => runs || at <= limit),
  );
  const until = runs ? least(points.map((list) => list.at(-1)[0])) : limit;
  return { shown, byUpdates, points, until };
}

/** Loss of every run, with a line at where the reader stands. */
export function lossPanel(position, base, runs, { shown, byUpdates, points, until }) {
  const { run, done, span } = position;
  const found = points.flat().flatMap(([, loss]) => (loss > 0 && loss < 1e4 ? [loss] : []));
  const from = Math.max(1e-4, least(found));
  const to = Math.max(most(found), from * 10);
  const across = runs ? most(points.flat().map(([at]) => at)) : until;
  const curves = points.map((list, k) => {
    return [list, strokeOf(k, run === shown[k] ? 4 : 2), { "data-run": shown[k].name }];
  });
  const now = byUpdates ? done.length : span;
  const ends = [from, to].map((loss) => [now, loss]);
  if (now <= across) curves.push([ends, "stroke:currentColor;stroke-dasharray:3 3"]);
  const title = `loss against ${byUpdates ? "updates" : "time"}; thick: the run above`;
  const names = shown.map(({ name }) => name);
  return panel(position, base, 120, title, names, curves, [0, across, tidy], [from, to, tidy, true]);
}
