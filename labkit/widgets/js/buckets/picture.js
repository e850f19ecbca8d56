// The bucket explorer's picture, from top to bottom.

import { strokeOf } from "../figure/colours.js";
import { holds, stripes, text } from "../figure/markup.js";
import { least, most, sum } from "../figure/numbers.js";
import { axis, plot } from "../figure/plot.js";
import { seconds } from "../figure/units.js";
import { capBars } from "./caps.js";
import { lost, part } from "./plan.js";
import { bucketEdges, gradientStrip, modelRow, rankRow } from "./rows.js";

const LEFT = 82;
const ROOMY = 500; // pixels of an axis after which there is room for words

/** When the last of everything that is shown ends. */
function endOf({ now, stacked, run }) {
  const ran = run.flatMap(([, compute, sent]) => [...compute.map((each) => each[2]), ...sent.map((each) => each[4])]);
  return most([now.whole, ...stacked.map(([, each]) => each.whole), ...ran]);
}

/** Rows under each other: `svg` of all that was put down so far, `y` where the next begins. */
class Sheet {
  constructor(scene, width) {
    this.width = width;
    this.wide = width - LEFT - 12;
    this.isRoomy = this.wide >= ROOMY;
    this.long = this.wide - (this.isRoomy ? 124 : 52); // of words after it
    this.end = endOf(scene);
    this.scene = { ...scene, width, x: (time) => LEFT + (time / this.end) * this.long };
    this.y = 6;
    this.svg = stripes(1);
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

  /** How many gradients there are, and of how many the strip is no pixel wide, where there is room for that. */
  count({ begin, backward }) {
    const { sizes, x } = this.scene;
    const pixel = (sum(sizes) / backward / this.long) * this.end; // as many bytes
    const many = sizes.filter((size) => size < pixel).length;
    const words = `${sizes.length} gradients`;
    const more = `${words}, ${many} too thin to see`;
    return text(0, 21, many && holds(x(begin), more) ? more : words);
  }

  /** The step of the sliders, on rank 0 and on the slowest. */
  model(now) {
    const top = this.y;
    this.svg += this.count(now);
    this.strip(now, "", 24);
    this.svg += bucketEdges(now, 24, top, this.scene);
    this.row("rank 0", modelRow(now), "model", "");
    const words = `${this.isRoomy ? "a step: " : ""}${seconds(now.whole)}`;
    this.svg += text(this.scene.x(now.whole) + 6, top + 51, words, "bold");
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
    this.svg += axis(LEFT, this.y, this.long, this.end, seconds);
    this.y += 28;
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
    this.y += 14;
    this.svg += plot(LEFT, this.y, this.long, 60, title, [curve, ...marks], ...scales);
    this.y += 96;
  }

  /** What each cap costs, under the axis. */
  caps(scene) {
    this.y += 14;
    const [markup, tall] = capBars(scene, { x: LEFT, y: this.y, wide: this.wide });
    this.svg += markup;
    this.y += tall;
  }
}

/**
 * { svg, height, shareAt } of a scene; shareAt(x) is the part of backward that is over at a pixel. A scene is
 * { data, values, now, fault, stacked, run, ways, curve, best, sizes, isFaded }.
 */
export function picture(scene, width) {
  const { data, values, now, stacked, run, curve } = scene;
  const sheet = new Sheet(scene, width);
  const shareAt = (x) => (((x - LEFT) / sheet.long) * sheet.end - now.begin) / now.backward;
  sheet.model(now);
  sheet.stack(stacked);
  sheet.measured(values.room ? run.slice(0, 1) : run);
  sheet.axis();
  if (!values.room) {
    if (data.norms && now.hook.errors) sheet.errors(scene);
    if (least(curve) < Infinity) sheet.caps(scene);
  }
  return { shareAt, svg: sheet.svg, height: sheet.y + 4 };
}
