// The compression explorer: a step's time against the link's speed for each method, and what the method loses.

import { strokeOf } from "../figure/colours.js";
import { rect, tag } from "../figure/markup.js";
import { least, most, range, sum } from "../figure/numbers.js";
import { legend, plot, roomForNames } from "../figure/plot.js";
import { choice, linkSliders, powers, slider } from "../figure/sliders.js";
import { bytes, seconds, speed } from "../figure/units.js";
import { pays, stepSeconds } from "./costs.js";

const SLOWEST = 1e7;
const FASTEST = 1e12;
const SPEEDS = range(51).map((k) => SLOWEST * (FASTEST / SLOWEST) ** (k / 50));
const LEFT = 62;
const TALL = 230;
const PANEL = 284; // pixels of a plot with its title and its axis

const tidy = (value) => String(Number(value.toPrecision(2)));
const AXES = { seconds, bytes, steps: tidy };
const LOSS_OF_TRAINING = "loss";
const CURVES = {
  residuals: "residual norm (not sent yet)",
  errors: "error of the mean",
};

/** The curves that methods come with, with their names. */
function curvesOf(methods) {
  const told = {};
  if (methods.some((method) => method.losses)) told.losses = LOSS_OF_TRAINING;
  if (methods.some((method) => method.residuals)) told.residuals = CURVES.residuals;
  if (methods.some((method) => method.errors?.length > 1)) told.errors = CURVES.errors;
  return told;
}

function slidersOf(data, told) {
  const sliders = [
    powers("scale", "gradients", 1, 0.01, 100, (scale) => bytes(data.methods[0].bytes * scale)),
    slider("ranks", "ranks", data.ranks, 2, 128),
    powers("compute", "forward and backward", data.compute, 1e-5, 10, seconds),
    ...linkSliders(data),
  ];
  if (Object.keys(told).length) sliders.push(choice("against", "plot against", "seconds", Object.keys(AXES)));
  return sliders;
}

/** Every method's step at every speed and at the one that is chosen. */
function timesOf(methods, values, bandwidth) {
  const at = (method, each) => stepSeconds(method, { ...values, bandwidth: each });
  const now = methods.map((method) => at(method, bandwidth));
  const every = methods.map((method) => SPEEDS.map((each) => [each, at(method, each)]));
  return { now, every, best: now.indexOf(least(now)) };
}

/** A step against the link's speed, with a line at the chosen one. */
function speedPlot(methods, { now, every, best }, bandwidth, wide, names) {
  const all = every.flat().map(([, time]) => time);
  const span = [least(all) / 1.05, most(all) * 1.05];
  const curves = methods.map((method, k) => {
    return [every[k], strokeOf(k, k === best ? 4 : 2), { "data-method": method.name }, [bandwidth, now[k]], names[k]];
  });
  const here = [span.map((time) => [bandwidth, time]), "stroke:currentColor;stroke-dasharray:3 3"];
  const title = "time of a step against link speed; lower is better";
  const scales = [
    [SLOWEST, FASTEST, speed, true],
    [...span, seconds, true],
  ];
  const hold = rect(LEFT, 24, wide, TALL, { fill: "#0000", style: "cursor:ew-resize", "data-pick": "speed" });
  return plot(LEFT, 24, wide, TALL, title, [...curves, here], ...scales) + hold;
}

/** What methods lose in training, against seconds, bytes or steps. */
function lossPlot(methods, key, name, { now }, { against = "seconds", scale }, wide, isNamed) {
  const shown = methods.filter((method) => method[key]);
  const unit = (method) => {
    return { seconds: now[methods.indexOf(method)], bytes: method.bytes * scale, steps: 1 }[against];
  };
  const ends = shown.map((method) => unit(method) * method[key].length);
  const end = (against === "bytes" ? 0.2 * most(ends) : 0) || 1.5 * least(ends);
  const found = shown.flatMap((method) => method[key]);
  const curves = shown.map((method) => {
    const points = method[key].map((value, step) => [(step + 1) * unit(method), value]);
    return [points, strokeOf(methods.indexOf(method)), {}, undefined, isNamed && method.name];
  });
  const title = `${name} against ${against}${against === "seconds" ? ", at this speed" : ""}`;
  const scales = [
    [0, end, AXES[against]],
    [least(found), most(found), tidy],
  ];
  return plot(LEFT, 24, wide, TALL, title, curves, ...scales);
}

/** The first loss plot stands beside the speeds where there is room, the others below. */
function picture(methods, told, times, values, bandwidth, width) {
  const isBeside = width > 700 && told.losses;
  const half = isBeside ? width / 2 - 10 : width;
  const wide = half - LEFT - Math.max(roomForNames(half), 22);
  const names = methods.map((method) => method.name);
  const endNames = roomForNames(half) ? names : [];
  let svg = speedPlot(methods, times, bandwidth, wide, endNames);
  let bottom = PANEL;
  Object.entries(told).forEach(([key, name], k) => {
    const [x, y] = isBeside && k === 0 ? [half + 20, 0] : [0, bottom + 6];
    const panel = lossPlot(methods, key, name, times, values, wide, endNames.length);
    svg += tag("g", { transform: `translate(${x} ${y})` }, panel);
    bottom = y + PANEL;
  });
  const [entries, height] = endNames.length ? ["", 4] : legend(names, bottom, width);
  const stepAt = (x) => Math.min(Math.max(Math.round(((x - LEFT) / wide) * (SPEEDS.length - 1)), 0), SPEEDS.length - 1);
  return { svg: svg + entries, height: bottom + height, stepAt };
}

/** Where a method pays, in words. */
function where(borders) {
  if (!borders) return "nowhere";
  const [from, to] = borders;
  if (from) return `above ${speed(from)}`;
  return to < Infinity ? `below ${speed(to)}` : "at any speed";
}

const lossOf = ({ errors }) => (errors ? `${tidy((100 * sum(errors)) / errors.length)} %` : "–");

function numbersOf(methods, places, { now }) {
  return methods.map((method, k) => {
    const faster = k ? `, faster ${places[k]}` : "";
    const error = method.errors ? `, error ${lossOf(method)}` : "";
    return [method.name, seconds(now[k]) + faster + error];
  });
}

function tableOf(methods, places, { now }, scale) {
  const rows = methods.map((method, k) => {
    return [method.name, bytes(method.bytes * scale), seconds(now[k]), k ? places[k] : "–", lossOf(method)];
  });
  return [["method", "bytes", "a step", "faster", "error"], ...rows];
}

/** @returns {import("../figure/explorer.js").View} */
export function compressionExplorer(data) {
  const { methods } = data;
  const told = curvesOf(methods);
  let seen; // the picture that was drawn last
  return {
    title: "Where compression pays",
    source: data.source,
    begin: 20,
    stepLabel: "link speed",
    main: ["bandwidth", "scale", "ranks"],
    sliders: slidersOf(data, told),
    steps: () => SPEEDS.length - 1,
    stepName: (values, step) => speed(SPEEDS[step]),
    pick: ({ x }) => seen.stepAt(x),
    grab: ({ mark }) => mark.closest("[data-pick]") && (({ x }) => seen.stepAt(x)),
    draw(values, step, width) {
      const bandwidth = SPEEDS[step];
      const times = timesOf(methods, values, bandwidth);
      const places = methods.map((method) => where(pays(method, methods[0], values)));
      const [best, plain] = [methods[times.best].name, methods[0].name];
      seen = picture(methods, values.room ? {} : told, times, values, bandwidth, width);
      return {
        svg: seen.svg,
        height: seen.height,
        numbers: numbersOf(methods, places, times),
        title:
          best === plain
            ? `At ${speed(bandwidth)} nothing is faster than ${plain}`
            : `At ${speed(bandwidth)} ${best} makes a step ${tidy(times.now[0] / least(times.now))} times as fast`,
        say:
          `At ${speed(bandwidth)} ${best} has the fastest step, ${seconds(times.now[times.best])}; ` +
          `${plain} takes ${seconds(times.now[0])}.`,
        table: tableOf(methods, places, times, values.scale),
        data: { best },
      };
    },
  };
}
