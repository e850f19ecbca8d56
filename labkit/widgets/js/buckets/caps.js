// What each bucket cap costs: the time of a step beyond its computing, as bars from 0.

import { hue } from "../figure/colours.js";
import { escaped, rect, tag, text, wrapped } from "../figure/markup.js";
import { least } from "../figure/numbers.js";
import { axis } from "../figure/plot.js";
import { seconds } from "../figure/units.js";

const MIB = 2 ** 20;
const TORCHS = 25; // MiB: the cap of torch's DDP where nobody says otherwise
const [ROW, BAR] = [17, 11]; // pixels
const AXIS = 22; // pixels of the axis under the bars
const HEADS = 10; // pixels under what is said over the bars
const BOLD = 0.8; // of the letters in a line that are not bold
const ROOMY = 600; // pixels of a plot that has room for reasons
const LETTER = 5.9; // pixels

/** [[indices of caps, what they cost]]: caps beside each other under which the same is sent at the same time. */
function groupsOf({ curve, counts, now }) {
  const groups = [];
  curve.forEach((whole, k) => {
    const isAlike = k && counts[k] === counts[k - 1] && Math.abs(whole / curve[k - 1] - 1) < 1e-9;
    if (isAlike) groups.at(-1)[0].push(k);
    else groups.push([[k], Math.max(whole - now.compute, 0)]);
  });
  return groups;
}

/** "2 MiB", "25-100 MiB". */
function nameOf(caps, group) {
  const [from, to] = [group[0], group.at(-1)].map((k) => Number((caps[k] / MIB).toPrecision(3)));
  return `${from === to ? from : `${from}-${to}`} MiB`;
}

/** What is sent under a cap, and what there is to say of it. */
function reasons({ data, values, counts, sizes, curve }, group, isRoomy) {
  const count = counts[group[0]];
  const sent = `${count} bucket${count === 1 ? "" : "s"}`;
  if (!isRoomy) return [sent, ""];
  const when = (count === 1 && ", sent after backward") || (count === sizes.length && ", one a tensor");
  const has = (cap) => group.some((k) => data.caps[k] === cap);
  const told = [
    group.includes(curve.indexOf(least(curve))) && "best",
    has(values.cap) && "this cap, as above",
    !data.plans && has(TORCHS * MIB) && `DDP’s default cap: ${TORCHS} MiB`,
  ].filter(Boolean);
  return [`${sent}${when || ""}`, told.join("; ")];
}

/** What stands beside the bar of caps that are alike: [how long it is, what is sent, what there is to say of it]. */
function wordsOf(scene, [group, cost], isRoomy) {
  const isThis = group.some((k) => scene.data.caps[k] === scene.values.cap);
  return { isThis, words: [seconds(cost), ...reasons(scene, group, isRoomy)] };
}

/** The bar of caps that are alike: of the best one in ink, of this one framed in it. */
function barOf(scene, each, { x, y, wide, scale }) {
  const [group, cost] = each;
  const { isThis, words } = wordsOf(scene, each, wide >= ROOMY);
  const isBest = group.includes(scene.curve.indexOf(least(scene.curve)));
  const bold = isThis || isBest ? " bold" : "";
  const frame = isThis ? ";stroke:currentColor;stroke-width:2" : "";
  const style = `fill:${isBest ? "currentColor" : hue("line")}${frame}`;
  const name = nameOf(scene.data.caps, group);
  const told = [bold, "grey", "bold"].map((look, k) => tag("tspan", { class: look, dx: k ? 8 : 0 }, escaped(words[k])));
  return (
    rect(x, y, cost * scale, BAR, { style, "data-cap": scene.data.caps[group[0]] }) +
    text(x - 6, y + BAR - 1, name, `small end${bold}`) +
    tag("text", { x: x + cost * scale + 6, y: y + BAR - 1 }, told.join(""))
  );
}

/** The bars in a frame { x, y, wide, perSecond } of a scene: [markup, height]; to the axis's scale where they fit. */
export function capBars(scene, { x, y, wide, perSecond }) {
  const groups = groupsOf(scene);
  const fits = groups.map((each) => {
    const { words } = wordsOf(scene, each, wide >= ROOMY);
    return (wide - LETTER * words.join("  ").trim().length - 8) / Math.max(each[1], 1e-12);
  });
  const scale = least([perSecond, ...fits]);
  const [head, tall] = wrapped(scene.advice, y + 14, BOLD * (x + wide), "plain bold");
  const what = scene.now.skew ? "exposed communication, and waiting for the late rank" : "exposed communication";
  const computing = `time of a step beyond its ${seconds(scene.now.compute)} of computing: ${what}`;
  const scaled = scale === perSecond ? ", to the scale above" : "";
  const [told, down] = wrapped(`${computing}${scaled}`, y + tall + 17, x + wide);
  const top = y + tall + down + HEADS;
  const bars = groups.map((each, k) => barOf(scene, each, { x, y: top + ROW * k, wide, scale }));
  const under = axis(x, top + ROW * groups.length, wide, wide / scale, seconds);
  return [head + told + bars.join("") + under, tall + down + HEADS + ROW * groups.length + AXIS];
}
