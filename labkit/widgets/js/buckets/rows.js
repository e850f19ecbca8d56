// Rows of the bucket explorer: gradients in their buckets' colours, ranks with what they compute and send.

import { hue, ink, letterOf, tintOf } from "../figure/colours.js";
import { bar, faint, holds, line, rect, text } from "../figure/markup.js";
import { most, sum } from "../figure/numbers.js";
import { seconds, secondsOf } from "../figure/units.js";
import { mib } from "./plan.js";

const COMPUTE = {
  F: ["forward", hue("forward")],
  S: ["search", hue("host")],
  B: ["backward", hue("backward")],
  O: ["optimizer", hue("optimizer")],
};

const LETTERED = 20; // pixels of a strip that has letters
const ROOM = 20; // pixels of a bucket in it

export { tintOf as fillOf };

/** A bucket in words; times count from `begin` on. */
export function told({ name, ready, start, end }, begin = 0) {
  return `${name}, ready ${seconds(begin + ready)}, sent ${seconds(begin + start)} to ${seconds(begin + end)}`;
}

/** [where each parameter begins and ends in backward, as shares of all bytes], in the order backward makes them. */
function shares(sizes, used) {
  const total = sum(sizes);
  let before = 0;
  return [...used].reverse().map((parameter) => {
    const from = before / total;
    before += sizes[parameter];
    return { parameter, from, to: before / total };
  });
}

/**
 * The gradients of a step, each in its bucket's colour.
 *
 * @param {object} scene Where times lie: { x, sizes, isFaded(k, link, isMain) }.
 * @param {string} link What its buckets are lit with; "" for the step that the sliders choose.
 */
export function gradientStrip({ plan, times, used, begin, backward }, link, tall, y, scene) {
  const bucketOf = new Map(plan.flatMap((bucket, k) => bucket.map((parameter) => [parameter, k])));
  const { x, sizes, isFaded } = scene;
  const all = shares(sizes, used);
  const cells = all
    .map(({ parameter, from, to }) => {
      const k = bucketOf.get(parameter);
      const isAlone = k === undefined;
      const [left, right] = [from, to].map((share) => x(begin + share * backward));
      const looks = {
        fill: isAlone ? "none" : tintOf(k),
        class: isAlone ? "bad" : "thin",
        opacity: isFaded(k, link, !link) && 0.25,
        "data-parameter": parameter,
        "data-bucket": k,
        "data-link": link + k,
      };
      const where = isAlone ? "in no bucket" : told(times[k], begin);
      const title = `parameter ${parameter}: ${mib(sizes[parameter])}, ${where}`;
      return rect(left, y, right - left, tall, looks, title);
    })
    .join("");
  return cells + (tall < LETTERED ? "" : lettersOf(plan, all, (share) => x(begin + share * backward), y, tall));
}

/** The letter of each bucket in the middle of its gradients, where these lie side by side and have room. */
function lettersOf(plan, all, at, y, tall) {
  const letter = (bucket, k) => {
    const own = all.filter(({ parameter }) => bucket.includes(parameter));
    if (!own.length) return "";
    const [left, right] = [at(own[0].from), at(own.at(-1).to)];
    const isOne = all.indexOf(own.at(-1)) - all.indexOf(own[0]) === own.length - 1;
    if (!isOne || right - left < ROOM) return "";
    const style = `${ink(tintOf(k)).style};paint-order:stroke;stroke-width:6;stroke:${tintOf(k)}`;
    return text((left + right) / 2, y + tall / 2 + 4, letterOf(k), "small middle", { style });
  };
  return plan.map(letter).join("");
}

/** Where each bucket ends in the strip of gradients, to take hold of; nowhere if buckets lie in another order. */
export function bucketEdges({ plan, used, begin, backward }, tall, y, { x, sizes }) {
  const made = [...used].reverse();
  if (plan.flat().some((parameter, k) => parameter !== made[k])) return "";
  const total = sum(sizes);
  let sent = 0;
  return plan
    .slice(0, -1)
    .map((bucket, k) => {
      sent += sum(bucket.map((parameter) => sizes[parameter]));
      const at = x(begin + (sent / total) * backward);
      const looks = { fill: "#0000", style: "cursor:ew-resize", "data-edge": k };
      const grip = line(at, y - 4, at, y + tall + 8, "now", { "pointer-events": "none" });
      return grip + rect(at - 5, y - 4, 10, tall + 12, looks, `end of bucket ${letterOf(k)}: drag to change the cap`);
    })
    .join("");
}

/** What a rank computes, as [[letter, from, to]]. */
function computeBars(compute, kind, y, x) {
  return compute
    .filter(([, from, to]) => to > from)
    .map(([letter, from, to]) => {
      const [name, fill] = COMPUTE[letter];
      const width = x(to) - x(from);
      const title = `${name}: ${seconds(from)} to ${seconds(to)}`;
      return bar(
        x(from),
        y,
        width,
        21,
        fill,
        holds(width, name) ? name : letter,
        { "data-compute": `${kind}:${letter}` },
        title,
      );
    })
    .join("");
}

/** One bucket below what its rank computes: ready, waiting, sent, and a thick edge where nothing hides it. */
function bucketBar([size, ready, all, start, end, name], k, { free, computed, y, x }) {
  const mine = most([ready, free]); // when this rank could have sent it
  const isLate = all > mine && start > mine;
  let svg = line(x(ready), y + 21, x(ready), y + 28);
  if (start > ready) svg += line(x(ready), y + 23 + (k % 2) * 3, x(start), y + 23 + (k % 2) * 3);
  if (isLate) {
    const looks = { fill: "url(#lk-idle1)", "data-late": k };
    svg += rect(x(mine), y + 28, x(start) - x(mine), 21, looks, "waits for the slowest rank");
  }
  const title = told({ name: name ?? `bucket ${letterOf(k)}: ${mib(size)}`, ready, start, end });
  svg += bar(x(start), y + 28, x(end) - x(start), 21, tintOf(k), letterOf(k), {}, title);
  if (end > computed) {
    const looks = { style: `stroke:${hue("wrong")};stroke-width:4`, "data-exposed": k };
    svg += line(x(most([start, computed])), y + 27, x(end), y + 27, "", looks);
  }
  return svg;
}

const BOLD = 8; // pixels of a bold letter, on a slide, too

/** What is red over the buckets, in as many words as there is room for. */
function exposedWords(sent, computed, room, whole) {
  const time = `! ${secondsOf(sum(sent.map(([, , , start, end]) => most([end - most([start, computed]), 0]))), whole)}`;
  return [`${time} exposed`, time].find((words) => BOLD * words.length < room) ?? "";
}

/**
 * A rank.
 *
 * @param {Array} compute What it computes, as [[letter, from, to]].
 * @param {Array} sent Its buckets, as [[bytes, ready here, ready everywhere, start, end, name]].
 * @param {string} kind Which row this is.
 * @param {string} link What its buckets are lit with.
 */
export function rankRow(name, compute, sent, kind, link, y, { x, isFaded, width }) {
  const computed = most(compute.map(([letter, , to]) => (letter === "O" ? 0 : to)));
  const until = most([0, ...sent.map(([, , , , end]) => end)]);
  const buckets = sent.map((bucket, k) => {
    const markup = bucketBar(bucket, k, { free: sent[k - 1]?.[4] ?? 0, computed, y, x });
    return faint(isFaded(k, link, !link), markup, { "data-sent": k, "data-row": kind, "data-link": link + k });
  });
  return (
    text(0, y + 15, name) +
    computeBars(compute, kind, y, x) +
    buckets.join("") +
    text(0, y + 43, "all-reduce", "small grey") +
    (until > computed
      ? text(x(until) + 3, y + 43, exposedWords(sent, computed, width - x(until), until), "bad bold")
      : "") +
    line(x(computed), y - 3, x(computed), y + 52, "now", { "stroke-dasharray": "3 3" })
  );
}

/** What `rankRow` takes for a step of the model, of rank 0 or of the slowest rank. */
export function modelRow({ forward, begin, backward, last, optimizer, times, skew }, isSlowest) {
  const late = isSlowest ? skew : 0;
  const from = begin + late;
  const over = begin + last;
  const compute = [
    ["F", 0, forward + late],
    ["S", forward + late, from],
    ["B", from, from + backward],
    ["O", over, over + optimizer],
  ];
  const sent = times.map(({ bytes: size, ready, all, start, end, name }) => [
    size,
    from + ready,
    begin + all,
    begin + start,
    begin + end,
    name,
  ]);
  return [compute, sent];
}
