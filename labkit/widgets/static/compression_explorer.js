import { axis, bytes, line, seconds, tag, text } from "./figure.js";

const COLOURS = ["currentColor", ...["#0072b2", "#d55e00", "#56b4e9", "#999999", "#332288", "#ddcc77", "#661100"].map((c) => `color-mix(in srgb,${c} 72%,currentColor)`)];
const DASHES = ["", "7 3", "2 3", "7 3 2 3", "12 3", "4 2", "1 2", "9 2 1 2"];

/** Time of one step: compute, compress, and an all_reduce of what can be added or an all_gather of packets. */
export function stepSeconds(method, { compute, ranks, latency, bandwidth, scale = 1 }) {
  const b = method.bytes * scale;
  const comm = method.addable ? 2 * (ranks - 1) * (latency + b / ranks / bandwidth) : (ranks - 1) * (latency + b / bandwidth);
  return compute + method.compress * scale + comm;
}

/** [from, to] bandwidths between which a method's step is faster than the plain one's, or null. */
export function pays(method, plain, values) {
  const rest = (each) => stepSeconds(each, { ...values, bandwidth: Infinity }), perByte = (each) => stepSeconds({ ...each, compress: 0 }, { ...values, compute: 0, latency: 0, bandwidth: 1 });
  const saved = perByte(plain) - perByte(method), costs = rest(method) - rest(plain);
  if (costs <= 0 && saved >= 0) return [0, Infinity];
  return costs * saved <= 0 ? null : costs > 0 ? [0, saved / costs] : [saved / costs, Infinity];
}

export function compressionExplorer(data) {
  const { methods } = data, low = 1e7, high = 1e12, speeds = Array.from({ length: 51 }, (_, k) => low * (high / low) ** (k / 50));
  const gbit = (v) => bytes(v) + "/s";
  return {
    title: "Where compression pays", source: data.source, begin: 20, stepLabel: "link speed",
    sliders: [
      { key: "scale", label: "gradients", log: true, min: 0.01, max: 100, value: 1, show: (v) => bytes(methods[0].bytes * v) },
      { key: "ranks", label: "ranks", min: 2, max: 128, value: data.ranks, show: String },
      { key: "compute", label: "forward and backward", log: true, min: 1e-5, max: 10, value: data.compute, show: seconds },
      { key: "latency", label: "latency α", log: true, min: 1e-7, max: 1e-3, value: data.latency, show: seconds },
    ],
    steps: () => 50,
    stepName: (values, step) => gbit(speeds[step]),
    draw(values, step, width) {
      const bandwidth = speeds[step], left = 62, half = width > 700 && methods.some((each) => each.losses) ? width / 2 - 10 : width, wide = half - left - 14, tall = 230;
      const at = (each, speed) => stepSeconds(each, { ...values, bandwidth: speed }), every = methods.map((each) => speeds.map((speed) => at(each, speed)));
      const [min, max] = [Math.min(...every.flat()), Math.max(...every.flat())], y = (t) => 24 + tall * (1 - Math.log(t / min * 1.05) / Math.log((max / min) * 1.1)), x = (k) => left + (k / 50) * wide;
      let svg = text(0, 12, "a step, against the link's speed; lower is better", "small grey");
      const fastest = methods.map((each) => at(each, bandwidth)), best = fastest.indexOf(Math.min(...fastest));
      methods.forEach((each, k) => {
        const style = `stroke:${COLOURS[k % 8]};fill:none;stroke-width:${k === best ? 4 : 2}`;
        svg += tag("path", { d: "M" + every[k].map((t, s) => `${x(s).toFixed(1)} ${y(t).toFixed(1)}`).join("L"), style, "stroke-dasharray": DASHES[k % 8], "data-method": each.name }) + tag("circle", { cx: x(step), cy: y(fastest[k]), r: 4, style: `fill:${COLOURS[k % 8]}` });
      });
      for (const power of [7, 8, 9, 10, 11, 12]) svg += text(x((power - 7) * 10), 272, bytes(10 ** power) + "/s", "small middle");
      for (let t = 10 ** Math.ceil(Math.log10(min)); t <= max; t *= 10) svg += line(left, y(t), left + wide, y(t), "soft") + text(left - 6, y(t) + 4, seconds(t), "small end");
      svg += line(left, 24 + tall, left + wide, 24 + tall) + line(x(step), 24, x(step), 24 + tall, { class: "now", "stroke-dasharray": "3 3" });
      let bottom = 284;
      if (methods.some((each) => each.losses)) {
        const [ox, oy] = half < width ? [half + 20, 0] : [0, 290], curves = methods.filter((each) => each.losses), finite = curves.flatMap((each) => each.losses).filter(Number.isFinite);
        const top = Math.max(...finite), floor = Math.min(...finite), end = 1.5 * Math.min(...curves.map((each) => at(each, bandwidth) * each.losses.length));
        let inner = text(0, 12, "loss against seconds, at this speed", "small grey") + text(left - 6, 30, top.toPrecision(2), "small end") + text(left - 6, 24 + tall, floor.toPrecision(2), "small end");
        for (const each of curves) {
          const k = methods.indexOf(each), points = each.losses.map((loss, s) => [((s + 1) * at(each, bandwidth)) / end, (loss - floor) / (top - floor || 1)]).filter(([t]) => t <= 1);
          inner += points.length ? tag("path", { d: "M" + points.map(([t, v]) => `${(left + t * wide).toFixed(1)} ${(24 + tall * (1 - v)).toFixed(1)}`).join("L"), style: `stroke:${COLOURS[k % 8]};fill:none;stroke-width:2`, "stroke-dasharray": DASHES[k % 8] }) : "";
        }
        svg += tag("g", { transform: `translate(${ox} ${oy})` }, inner + axis(left, 24 + tall, wide, end, seconds));
        bottom = oy + 284;
      }
      const borders = methods.map((each) => pays(each, methods[0], values));
      const said = (b) => (!b ? "nowhere" : b[0] ? `above ${gbit(b[0])}` : b[1] < Infinity ? `below ${gbit(b[1])}` : "at any speed");
      const numbers = methods.map((each, k) => [each.name, `${seconds(fastest[k])}${k ? `, faster ${said(borders[k])}` : ""}`]);
      let lx = 0;
      methods.forEach((each, k) => {
        const w = 44 + 6.6 * each.name.length;
        if (lx + w > width && lx) [lx, bottom] = [0, bottom + 18];
        svg += line(lx, bottom + 8, lx + 28, bottom + 8, { style: `stroke:${COLOURS[k % 8]};stroke-width:3`, "stroke-dasharray": DASHES[k % 8] }) + text(lx + 33, bottom + 12, each.name);
        lx += w;
      });
      return { svg, height: bottom + 22, numbers, say: `At ${gbit(bandwidth)} the fastest step is that of ${methods[best].name}, ${seconds(fastest[best])}; ${methods[0].name} takes ${seconds(fastest[0])}.`,
        table: [["", "bytes", "a step", "faster"], ...methods.map((each, k) => [each.name, bytes(each.bytes * values.scale), seconds(fastest[k]), k ? said(borders[k]) : "–"])], data: { best: methods[best].name } };
    },
  };
}
