"use strict";
// The poll: what was asked, everybody's guesses, and once revealed what came out. Its words are page.js's.

const ALONG = 620; // of 640 across, 10 left free at either end
const along = (at) => 10 + at * ALONG;
const inWords = (name) => name.replaceAll("_", " ");

function drawPoll(section) {
  const poll = standing.poll;
  section.hidden = !poll;
  if (!poll) return;
  const { layout, middle, readable } = globalThis.guesses;
  const { bars, ticks, place } = layout(poll.values);
  section.querySelector("h2").textContent = poll.asked || inWords(poll.guess);
  const median = middle(poll.values);
  const summed = median === undefined ? "" : `, the median is ${readable(median)} ${poll.unit}`.trimEnd();
  section.querySelector("p").textContent = `${many(poll.values.length, "guess", "guesses")}${summed}`;
  const svg = section.querySelector("svg");
  const tall = Math.max(260, (640 * svg.clientHeight) / (svg.clientWidth || 640));
  svg.style.setProperty("--letters", bars.filter(({ count }) => count).length > 8 ? "20px" : "26px");
  svg.setAttribute("viewBox", `0 0 640 ${tall}`);
  svg.setAttribute("preserveAspectRatio", `${instructors ? "xMin" : "xMid"}YMid`); // beside its question
  const floor = tall - (poll.unit ? 76 : 44); // below it labels, and what they count in
  const out = cameOut(poll, place, floor);
  const drawn = [
    ...barsOf(bars, floor, poll.came_out === null ? median : undefined),
    ...axisOf(bars, ticks, floor),
    ...unitOf(poll.unit, tall),
    ...out.drawn,
  ];
  const counts = bars.filter(({ count }) => count).map(({ label, count }) => `${label}: ${count}`);
  svg.setAttribute("aria-label", counts.join(", ") + out.said);
  // Words last, so that no line crosses them.
  const isWords = ({ nodeName }) => nodeName === "text";
  svg.replaceChildren(...drawn.filter((each) => !isWords(each)), ...drawn.filter(isWords));
  drawReveal(section.querySelector("button"), poll);
}

/** A bar for each value or word, that of the median the darkest. */
function barsOf(bars, floor, median) {
  const most = Math.max(...bars.map(({ count }) => count));
  return bars.flatMap(({ label, count, at, wide, isValue }) => {
    const high = ((floor - 80) * count) / most;
    const width = Math.max(4, Math.min(60, wide * ALONG - 8));
    const kind = isValue && label === String(median) ? "median" : "";
    const words = kind && { x: along(at), y: floor - high - 40, class: "middle" };
    return [
      shape("rect", { x: along(at) - width / 2, y: floor - high, width, height: high, class: kind }),
      ...(words ? [shape("text", words, "median")] : []),
      shape("text", { x: along(at), y: floor - high - 8 }, count ? String(count) : ""),
    ];
  });
}

/** The axis, a small mark below each bar, a larger one and a label at each tick. */
function axisOf(bars, ticks, floor) {
  const mark = (at, long) =>
    shape("line", { x1: along(at), x2: along(at), y1: floor, y2: floor + long, class: "axis" });
  return [
    shape("line", { x1: 0, x2: 640, y1: floor, y2: floor, class: "axis" }),
    ...bars.filter(({ isValue }) => isValue).map(({ at }) => mark(at, 5)),
    ...ticks.map(({ at }) => mark(at, 9)),
    ...ticks.map(({ at, label }) => shape("text", { x: along(at), y: floor + 35, class: "tick" }, label.slice(0, 12))),
  ];
}

/** What the numbers below the axis count in, at its right end. */
const unitOf = (unit, tall) =>
  unit ? [shape("text", { x: 630, y: tall - 8, class: "unit" }, String(unit).slice(0, 40))] : [];

function cameOut(poll, place, floor) {
  if (poll.came_out === null) return { drawn: [], said: "" };
  const at = place(poll.came_out);
  const x = at === null ? 320 : along(at);
  const text = `it is ${globalThis.guesses.readable(poll.came_out)} ${poll.unit}`.trim();
  const line = at === null ? [] : [shape("line", { x1: x, x2: x, y1: 36, y2: floor, class: "out" })];
  const words = shape("text", { x: Math.max(120, Math.min(520, x)), y: 28, class: "out" }, text);
  return { drawn: [...line, words], said: `; ${text}` };
}

/** The instructor's button, once there is something to reveal. */
function drawReveal(reveal, poll) {
  reveal.hidden = !instructors || poll.came_out !== null || standing.came_out === null;
  reveal.textContent = "Reveal what came out";
  reveal.onclick = () => change("reveal", { guess: poll.guess });
}

globalThis.drawPoll = drawPoll;
