import { bytes, choice, collective, least, legend, linkSliders, most, plot, powers, range, seconds, slider, speed, strokeOf, sum, tag } from "./figure.js";

/** Time of one step: compute, compress, and an all_reduce of what can be added or an all_gather of packets. */
export function stepSeconds(method, { compute, scale = 1, ...link }) {
  return compute + method.compress * scale + collective(method.bytes * scale, link, !method.addable);
}

/** [from, to] bandwidths between which a method's step is faster than the plain one's, or null. */
export function pays(method, plain, values) {
  const rest = (each) => stepSeconds(each, { ...values, bandwidth: Infinity }), perByte = (each) => stepSeconds({ ...each, compress: 0 }, { ...values, compute: 0, latency: 0, bandwidth: 1 });
  const saved = perByte(plain) - perByte(method), costs = rest(method) - rest(plain);
  if (costs <= 0 && saved >= 0) return [0, Infinity];
  return costs * saved <= 0 ? null : costs > 0 ? [0, saved / costs] : [saved / costs, Infinity];
}

export function compressionExplorer(data) {
  const { methods } = data, low = 1e7, high = 1e12, speeds = range(51).map((k) => low * (high / low) ** (k / 50));
  const told = methods.some((each) => each.losses) ? { losses: "loss" } : {}, tidy = (v) => String(+v.toPrecision(2));
  if (methods.some((each) => each.residuals)) told.residuals = "residual norm (what is still owed)";
  if (methods.some((each) => each.errors?.length > 1)) told.errors = "error of the mean";
  const axes = { seconds, bytes, steps: tidy };
  return {
    title: "Where compression pays", source: data.source, begin: 20, stepLabel: "link speed",
    sliders: [
      powers("scale", "gradients", 1, 0.01, 100, (v) => bytes(methods[0].bytes * v)), slider("ranks", "ranks", data.ranks, 2, 128),
      powers("compute", "forward and backward", data.compute, 1e-5, 10, seconds), ...linkSliders(data),
      ...(Object.keys(told).length ? [choice("against", "curves against", "seconds", Object.keys(axes))] : []),
    ],
    steps: () => 50,
    stepName: (values, step) => speed(speeds[step]),
    draw(values, step, width) {
      const bandwidth = speeds[step], left = 62, side = width > 700 && told.losses, half = side ? width / 2 - 10 : width, wide = half - left - 14, tall = 230;
      const at = (each, bandwidth) => stepSeconds(each, { ...values, bandwidth }), every = methods.map((each) => speeds.map((v) => [v, at(each, v)])), all = every.flat().map((p) => p[1]);
      const fastest = methods.map((each) => at(each, bandwidth)), best = fastest.indexOf(least(fastest)), span = [least(all) / 1.05, most(all) * 1.05];
      const lines = methods.map((each, k) => [every[k], strokeOf(k, k === best ? 4 : 2), { "data-method": each.name }, [bandwidth, fastest[k]]]);
      let svg = plot(left, 24, wide, tall, "a step, against the link's speed; lower is better", [...lines, [span.map((t) => [bandwidth, t]), "stroke:currentColor;stroke-dasharray:3 3"]], [low, high, speed, true], [...span, seconds, true]);
      let bottom = 284, right = side;
      for (const [key, name] of Object.entries(told)) {
        const curves = methods.filter((each) => each[key]), { against = "seconds" } = values, unit = (each) => ({ seconds: at(each, bandwidth), bytes: each.bytes * values.scale, steps: 1 })[against];
        const found = curves.flatMap((each) => each[key]), end = (against === "bytes" ? 0.2 * most(curves.map((each) => unit(each) * each[key].length)) : 0) || 1.5 * least(curves.map((each) => unit(each) * each[key].length));
        const [ox, oy] = right ? [half + 20, 0] : [0, bottom + 6];
        svg += tag("g", { transform: `translate(${ox} ${oy})` }, plot(left, 24, wide, tall, `${name} against ${against}${against === "seconds" ? ", at this speed" : ""}`,
          curves.map((each) => [each[key].map((v, s) => [(s + 1) * unit(each), v]), strokeOf(methods.indexOf(each))]), [0, end, axes[against]], [least(found), most(found), tidy]));
        bottom = oy + 284;
        right = false;
      }
      const borders = methods.map((each) => pays(each, methods[0], values));
      const lost = ({ errors }) => (errors ? `${tidy((100 * sum(errors)) / errors.length)} %` : "–");
      const said = (b) => (!b ? "nowhere" : b[0] ? `above ${speed(b[0])}` : b[1] < Infinity ? `below ${speed(b[1])}` : "at any speed");
      const numbers = methods.map((each, k) => [each.name, seconds(fastest[k]) + (k ? ", faster " + said(borders[k]) : "") + (each.errors ? ", error " + lost(each) : "")]);
      const [names, more] = legend(methods.map((each) => each.name), bottom, width);
      return { svg: svg + names, height: bottom + more, numbers, say: `At ${speed(bandwidth)} the fastest step is that of ${methods[best].name}, ${seconds(fastest[best])}; ${methods[0].name} takes ${seconds(fastest[0])}.`,
        table: [["method", "bytes", "a step", "faster", "error"], ...methods.map((each, k) => [each.name, bytes(each.bytes * values.scale), seconds(fastest[k]), k ? said(borders[k]) : "–", lost(each)])], data: { best: methods[best].name } };
    },
  };
}
