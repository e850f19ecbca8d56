// Sliders: a range, or one of a list of options, such as powers.

import { escaped, tag } from "./markup.js";
import { range } from "./numbers.js";
import { seconds, speed } from "./units.js";

/**
 * @typedef {object} Slider
 * @property {string} key
 * @property {string} label
 * @property {*} value
 * @property {number} min
 * @property {number} max
 * @property {(value: *) => string} show
 * @property {number} step
 * @property {Array} [options] What it chooses from; its positions are then their places.
 */

/** @returns {Slider} */
export const slider = (key, label, value, min, max, show = String, step = 1) => ({
  key,
  label,
  value,
  min,
  max,
  show,
  step,
});

/** @returns {Slider} */
export const choice = (key, label, value, options, show = String) => ({
  ...slider(key, label, value, 0, options.length - 1, show),
  options,
});

/** A hundred steps of one factor; the value that is given takes the place of the one next to it. */
export function powers(key, label, value, min, max, show) {
  const factor = (max / min) ** 0.01;
  const options = range(101).map((k) => Number((min * factor ** k).toPrecision(3)));
  options[Math.round(Math.log(value / min) / Math.log(factor))] = value;
  return choice(key, label, value, options, show);
}

/** Sliders of a link, as far as the data speaks of it. */
export function linkSliders({ latency, bandwidth }) {
  const sliders = [powers("latency", "latency α", latency, 1e-7, 1e-3, seconds)];
  if (bandwidth) sliders.push(powers("bandwidth", "link speed", bandwidth, 1e7, 1e12, speed));
  return sliders;
}

/** Words to choose from, as buttons side by side. */
function segments({ key, label, options, show }, value) {
  const buttons = options.map((option, at) => {
    const told = { type: "button", "data-choice": key, "data-at": at, "aria-pressed": String(option === value) };
    return tag("button", told, escaped(show(option)));
  });
  const named = { class: "segments", role: "group", "aria-label": label };
  return tag("span", named, `${tag("span", { class: "hint" }, escaped(label))}${tag("span", {}, buttons.join(""))}`);
}

/** A control with its name and what it stands at: buttons for words, a slider for numbers. */
export function sliderMarkup(control, value) {
  const { key, label, min, max, step, show, options } = control;
  if (options?.some((option) => typeof option === "string")) return segments(control, value);
  const position = options?.indexOf(value) ?? value;
  const told = { "data-key": key, "aria-valuetext": show(value) };
  const input = tag("input", { type: "range", min, max, step, value: position, ...told });
  return `<label>${escaped(label)} ${input} <output>${escaped(show(value))}</output></label>`;
}
