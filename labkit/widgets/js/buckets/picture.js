// The bucket explorer's picture, from top to bottom.

import { hue, ink, strokeOf } from "../figure/colours.js";
import { bar, holds, stripes, text } from "../figure/markup.js";
import { most } from "../figure/numbers.js";
import { axis, plot } from "../figure/plot.js";
import { seconds } from "../figure/units.js";
import { capPlot, capsTall } from "./caps.js";
import { lost } from "./plan.js";
import { bucketEdges, gradientStrip, modelRow, rankRow } from "./rows.js";

const LEFT = 74;
const TALL = 140; // pixels of the plot over the caps
const GREYS = ["line", "quiet", "line"].map(hue); // no colour of a phase or of a bucket
const part = (share) => `${Number((100 * share).toPrecision(2))} %`;

/** When the last of everything that is shown ends. */
function endOf({ now, stacked, run }) {
  const ran = run.flatMap(([, compute, sent]) => [...compute.map((each) => each[2]), ...sent.map((each) => each[4])]);
  return most([now.whole, now.alone, ...stacked.map(([, each]) => each.whole), ...ran]);
}

/** Rows under each other: `svg` of all that was put down so far, `y` where the next begins. */
class Sheet {
  constructor(scene, width) {
    this.width = width;
    this.wide = width - LEFT - 12;
    this.end = endOf(scene);
    this.scene = { ...scene, width, x: (time) => LEFT + (time / this.end) * this.wide };
    this.y = 20;
    this.svg =
      stripes(1) +
      text(0, 12, "as backward makes them: time in proportion to bytes", "small grey") +
      text(0, 35, "gradients");
  }

  strip(step, link, tall) {
    this.svg += gradientStrip(step, link, tall, this.y, this.scene);
    this.y += tall + 12;
  }

  row(name, [compute, sent], kind, link) {
    this.svg += rankRow(name, compute, sent, kind, link, this.y, this.scene);
    this.y += 58;
  }

  head(words) {
    this.y += 12;
    this.svg += text(LEFT, this.y, words, "bold");
    this.y += 6;
  }

  /** The step of the sliders, on rank 0 and on the slowest. */
  model(now) {
    const top = this.y;
    this.strip(now, "", 24);
    this.svg += bucketEdges(now, 24, top, this.scene);
    this.row("rank 0", modelRow(now), "model", "");
    if (now.skew) this.row("slowest", modelRow(now, true), "slowest", "");
  }

  stack(stacked) {
    for (const [name, step] of stacked) {
      this.head(`${name}: ${seconds(step.whole)}, ${seconds(step.exposed)} exposed`);
      this.strip(step, name, 10);
      this.row("rank 0", modelRow(step), `stacked ${name}`, name);
    }
  }

  /** What was measured; [label, compute, sent] of "rank 0, step 3". */
  measured(run) {
    let before;
    for (const [label, compute, sent] of run) {
      const [rank, when] = label.split(", ");
      const heading = `this run${when ? `, ${when}` : ""}`;
      if (heading !== before) this.head(heading);
      before = heading;
      this.row(rank, [compute, sent], "run", "run");
    }
  }

  axis() {
    this.svg += axis(LEFT, this.y, this.wide, this.end, seconds);
    this.y += 28;
  }

  /** Between what times of [name, time, why] this step lies. */
  bounds(times) {
    this.svg += text(0, this.y + 6, "step time, on the axis above", "small grey");
    this.y += 12;
    times.forEach(([name, time, why], k) => {
      const width = this.scene.x(time) - LEFT;
      const long = `${seconds(time)}: ${why}`;
      const words = holds(width, long) ? long : seconds(time);
      this.svg += text(0, this.y + 11, name);
      this.svg += bar(LEFT, this.y, width, 14, GREYS[k], "", { "data-bar": name });
      // At its end, which is what one compares.
      if (holds(width, words)) this.svg += text(LEFT + width - 6, this.y + 11, words, "small end", ink(GREYS[k]));
      this.y += 16;
    });
    this.y += 18;
  }

  /** What a lossy hook loses of each bucket. */
  errors({ now, data, values }) {
    const { errors } = now.hook;
    const all = now.times.map(({ end }, k) => [now.begin + end, lost(errors, data.norms, now.plan[k])]);
    const points = all.filter((_, k) => now.plan[k].length);
    const title = `error of a bucket, |sent − mean| / |mean|, ${data.measuredOn}`;
    const curve = [points, strokeOf(0), { "data-error": values.hook }];
    const marks = points.map((point) => [[], strokeOf(0), {}, point]);
    const scales = [
      [0, this.end, seconds],
      [1e-5, 1, part, true],
    ];
    this.svg += plot(LEFT, this.y, this.wide, 60, title, [curve, ...marks], ...scales);
    this.y += 112;
  }

  /** Step time over the cap, in its own frame. */
  caps(scene) {
    const frame = { x: LEFT, y: this.y, wide: this.wide, tall: TALL };
    this.svg += capPlot(scene, frame);
    this.y += capsTall(scene, frame);
  }
}

/**
 * { svg, height, shareAt } of a scene; shareAt(x) is the part of backward that is over at a pixel. A scene is
 * { data, values, now, stacked, run, curve, sizes, isFaded }.
 */
export function picture(scene, width) {
  const { data, values, now, stacked, run } = scene;
  const sheet = new Sheet(scene, width);
  const at = data.caps.indexOf(values.cap);
  const shareAt = (x) => (((x - LEFT) / sheet.wide) * sheet.end - now.begin) / now.backward;
  sheet.model(now);
  sheet.stack(stacked);
  sheet.measured(values.room ? run.slice(0, 1) : run);
  sheet.axis();
  if (values.room) return { shareAt, svg: sheet.svg, height: sheet.y + 4 };
  sheet.bounds([
    ["at least", most([now.compute, now.comm]), now.compute < now.comm ? "only sending" : "only computing"],
    ["actual", now.whole, `these buckets, ${seconds(now.whole - now.compute)} more`],
    ["no overlap", now.alone, "first computing, then sending these"],
  ]);
  if (data.norms && now.hook.errors) sheet.errors(scene);
  sheet.caps(scene);
  const wrong = data.faults?.[at];
  return {
    shareAt,
    svg: sheet.svg + (wrong ? text(0, sheet.y + 38, wrong, "bad") : ""),
    height: sheet.y + (wrong ? 46 : 20),
  };
}
