// A figure told in a few frames; what has a key moves from frame to frame.

import { ARROW, stripes } from "../figure/markup.js";
import { range } from "../figure/numbers.js";
import { shape } from "./shapes.js";

const WIDEST = 1.5; // times as large as it was drawn
const STRIP = 4; // frames that a filmstrip has at most

/** The frames of a filmstrip: the first, the last, some between, and for the nearest of these the one at `step`. */
function filmstrip(count, step) {
  const shown = Math.min(count, STRIP);
  const frames = range(shown).map((k) => Math.round((k * (count - 1)) / Math.max(shown - 1, 1)));
  const away = frames.map((frame) => Math.abs(frame - step));
  frames[away.indexOf(Math.min(...away))] = step;
  return frames;
}

const frameMarkup = (data, k, down) => {
  const shapes = data.frames[k].shapes.map((at) => shape(data.shapes[at]));
  return `<g transform="translate(0 ${down})">${shapes.join("")}</g>`;
};

/** Each frame with its sentence, bold where the reader stands, under each other. */
function strip(data, step) {
  return filmstrip(data.frames.length, step)
    .map((k, row) => {
      const down = row * (data.height + 26);
      const looks = `class="plain${k === step ? " bold" : ""}" x="8" y="${down + 14}"`;
      const says = `<text ${looks}>${k + 1}. ${data.frames[k].says}</text>`;
      return says + frameMarkup(data, k, down + 20);
    })
    .join("");
}

/** @returns {import("../figure/explorer.js").View} */
export function storyboard(data) {
  const still = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)")?.matches ?? false;
  const last = data.frames.length - 1;
  return {
    title: data.title,
    source: "",
    sliders: [],
    begin: data.begin,
    plain: true,
    stepLabel: "",
    steps: () => last,
    stepName: (values, step) => `${step + 1} of ${last + 1}`,
    draw(values, step, width) {
      const scale = Math.min(width / data.width, WIDEST);
      const height = still ? Math.min(last + 1, STRIP) * (data.height + 26) : data.height;
      const inner = still ? strip(data, step) : frameMarkup(data, step, 0);
      return {
        svg: `${ARROW}${stripes(0)}<g transform="scale(${scale.toFixed(4)})">${inner}</g>`,
        height: height * scale,
        numbers: data.numbers,
        say: data.frames[step].says,
        table: [["frame", "what happens"], ...data.frames.map(({ says }, k) => [k + 1, says])],
        data: {},
      };
    },
  };
}
