// A lane for each link: when it carries what.

import { hue } from "../figure/colours.js";
import { rect, text } from "../figure/markup.js";
import { most, range } from "../figure/numbers.js";
import { axis } from "../figure/plot.js";
import { seconds } from "../figure/units.js";

const LEFT = 52;
const MODEL = { fill: "none", class: "rule", "stroke-dasharray": "3 2" };
const LATENCY = { fill: hue("line"), class: "thin" };
const HEADS = {
  measured: "links; filled: this run, dashed: the model",
  modelled: "links; grey: latency, violet: bytes, dark: this step",
};

/** { svg, height } of transfers as [source, target, step, start, end]; `model` is what a run is compared with. */
export function links(times, model, n, now, width, latency) {
  const end = most([1e-12, ...[...times, ...model].map((transfer) => transfer[4])]);
  const scale = (width - LEFT - 8) / end;
  const tall = n > 8 ? 11 : 17;
  const place = (source, from, to, looks, title) =>
    rect(LEFT + from * scale, 22 + source * tall, Math.max((to - from) * scale, 1), tall - 4, looks, title);
  const bars = times.map(([source, target, step, from, to]) => {
    const title = `step ${step}, rank ${source} to ${target}: ${seconds(to - from)}`;
    const filled = place(
      source,
      from,
      to,
      { fill: hue("send"), "fill-opacity": step === now ? 1 : 0.45, class: "thin" },
      title,
    );
    return filled + (model.length ? "" : place(source, from, from + latency, LATENCY));
  });
  const outlines = model.map(([source, , , from, to]) => place(source, from, to, MODEL));
  const names = range(n).map((rank) =>
    text(0, 22 + rank * tall + tall / 2 + 1, `${rank} → ${(rank + 1) % n}`, tall < 12 ? "tiny" : "small"),
  );
  const head = text(0, 12, model.length ? HEADS.measured : HEADS.modelled, "small grey");
  const below = axis(LEFT, 26 + n * tall, width - LEFT - 8, end, seconds);
  return { svg: head + names.join("") + bars.join("") + outlines.join("") + below, height: 50 + n * tall };
}
