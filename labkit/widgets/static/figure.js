// The part that all explorers share: sliders, the player, keys, numbers, a table, and what is said aloud.
// A view is { title, source, sliders, steps(values), begin, draw(values, step, width) }; draw is a pure function and
// returns { svg, height, numbers: [[label, value]], say, table: [[cell]] }.

export const escaped = (text) =>
  String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt()};`);

/** An element as markup; undefined attributes are left out, numbers have two decimals. */
export function tag(name, attributes = {}, inner = "") {
  const written = Object.entries(attributes)
    .filter(([, value]) => value !== undefined && value !== false)
    .map(([key, value]) => ` ${key}="${typeof value === "number" ? +value.toFixed(2) : escaped(value)}"`);
  return `<${name}${written.join("")}>${inner}</${name}>`;
}

export const rect = (x, y, width, height, attributes = {}, title = "") =>
  tag("rect", { x, y, width: Math.max(width, 0), height, ...attributes }, title && tag("title", {}, escaped(title)));
export const text = (x, y, words, kind = "small", more = {}) => tag("text", { x, y, class: kind, ...more }, escaped(words));
export const line = (x1, y1, x2, y2, kind = "rule", more = {}) => tag("line", { x1, y1, x2, y2, class: kind, ...more });
export const faint = (whether, inner, more = {}) => tag("g", { opacity: whether && 0.25, ...more }, inner);

export const range = (n) => Array.from({ length: Math.max(n, 0) }, (_, k) => k);
export const sum = (list) => list.reduce((a, b) => a + b, 0);
export const most = (list) => Math.max(...list);
export const least = (list) => Math.min(...list);

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** Black or white, whichever stands out more on a colour. */
export function inkOn(hex) {
  const [r, g, b] = rgb(hex).map((v) => (v / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
}

export const ink = (fill) => ({ style: `fill:${inkOn(fill)}` });

/** A bar with words in it where they have room. */
export const bar = (x, y, width, height, fill, words = "", more = {}, title = "") =>
  rect(x, y, width, height, { fill, class: "edge", ...more }, title) +
  (width > 6.5 * String(words).length + 4 ? text(x + width / 2, y + height / 2 + 4, words, "small middle", ink(fill)) : "");

/** A colour between two, at a share of 0 to 1. */
export function between(from, to, share) {
  const [a, b] = [rgb(from), rgb(to)];
  const mixed = a.map((v, at) => Math.round(v + (b[at] - v) * Math.min(Math.max(share, 0), 1)));
  return "#" + mixed.map((v) => v.toString(16).padStart(2, "0")).join("");
}

const scaled = (value, units) => {
  const [size, unit] = units.find(([size]) => Math.abs(value) >= size * 0.9995) ?? units.at(-1);
  const shown = value / size;
  return `${shown === 0 ? 0 : shown >= 999.5 ? Math.round(shown) : +shown.toPrecision(3)} ${unit}`;
};
export const seconds = (value) => scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]);
export const bytes = (value) => scaled(value, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
export const speed = (value) => `${bytes(value)}/s`;
export const percent = (share) => `${(Math.round(1000 * share) / 10 || 0).toFixed(1)} %`;

/** Round numbers from 0 to the end, at 1, 2 or 5 times a power of ten. */
export function ticks(end, most = 8) {
  if (!(end > 0)) return [0];
  const rough = end / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999999);
  return Array.from({ length: Math.floor(end / step + 1e-9) + 1 }, (_, at) => at * step);
}

/** The line under a picture, with its unit. */
export function axis(x, y, width, end, format) {
  const marks = ticks(end, Math.max(2, Math.floor(width / 90))).map((tick) => {
    const at = x + (tick / end) * width;
    return line(at, y, at, y + 4) + text(at, y + 16, format(tick), "small middle");
  });
  return line(x, y, x + width, y) + marks.join("");
}

/** The style of the k-th line of a picture, told apart by colour and by dashes. */
export const strokeOf = (k, width = 2) =>
  `stroke:${LINES[k % 8]};fill:none;stroke-width:${width};stroke-dasharray:${"|7 3|2 3|7 3 2 3|12 3|4 2|1 2|9 2 1 2".split("|")[k % 8]}`;
const LINES = ["currentColor", ...["#0072b2", "#d55e00", "#56b4e9", "#999999", "#332288", "#ddcc77", "#661100"].map((c) => `color-mix(in srgb,${c} 72%,currentColor)`)];

/** Lines in a frame, each [points, style, attributes, marked point]; across and up are [from, to, format, logarithmic]. */
export function plot(x, y, width, height, title, lines, across, up) {
  const on = ([from, to, , log], v) => (log ? Math.log(v / from) / Math.log(to / from) : (v - from) / (to - from)) || 0;
  const at = ([u, v]) => [x + width * on(across, u), y + height * (1 - Math.min(Math.max(on(up, v), 0), 1))].map((each) => +each.toFixed(1));
  const marks = ([from, to, , log]) => (log ? range(40).map((k) => 10 ** (k - 20)).filter((_, k) => width > 300 || k % 2) : ticks(to, 5)).filter((v) => v >= from * 0.999 && v <= to * 1.001);
  const drawn = lines.map(([points, style, more, marked]) => {
    const seen = points.filter(([u]) => u <= across[1] * 1.001), [cx, cy] = marked ? at(marked) : [];
    return (seen.length ? tag("path", { d: "M" + seen.map((point) => at(point).join(" ")).join("L") + (seen[1] ? "" : "h4"), style, ...more }) : "") + (marked ? tag("circle", { cx, cy, r: 4, style: style.replace("fill:none", "fill:Canvas") }) : "");
  });
  return text(0, y - 10, title, "small grey", 5.8 * title.length > x + width && { textLength: x + width, lengthAdjust: "spacingAndGlyphs" }) + marks(up).map((v) => line(x, at([across[0], v])[1], x + width, at([across[0], v])[1], "soft") + text(x - 6, at([across[0], v])[1] + 4, up[2](v), "small end")).join("") +
    line(x, y + height, x + width, y + height) + marks(across).map((u) => text(at([u, up[0]])[0], y + height + 16, across[2](u), "small middle")).join("") + drawn.join("");
}

/** Names of lines beside a piece of each, from x = 0 on: [markup, height]. */
export function legend(names, y, width) {
  let [x, down] = [0, 0];
  const entries = names.map((name, k) => {
    const wide = 46 + 6.6 * name.length;
    if (x && x + wide > width) [x, down] = [0, down + 18];
    x += wide;
    return line(x - wide, y + down + 8, x - wide + 28, y + down + 8, "", { style: strokeOf(k, 3) }) + text(x - wide + 33, y + down + 12, name);
  });
  return [entries.join(""), down + 22];
}

/** An arrow's head, for marker-end. */
export const ARROW = '<defs><marker id="lk-arrow" viewBox="0 0 6 6" refX="4.5" refY="3" markerWidth="3.6" markerHeight="3.6" orient="auto"><path d="M0 0 6 3 0 6z" fill="context-stroke"/></marker></defs>';

/** Words in lines from x = 0 on: [markup, height]. */
export function wrapped(words, y, width, kind = "small grey") {
  const lines = [""];
  for (const word of words.split(" ")) {
    if (5.8 * (lines.at(-1) + word).length > width) lines.push("");
    lines.push(lines.pop() + word + " ");
  }
  return [lines.map((each, k) => text(0, y + 14 * k, each, kind)).join(""), 14 * lines.length];
}

/** Stripes for time in which nothing runs: k leans and weighs differently. */
export const stripes = (k, at = [45, 0, 135][k]) =>
  `<defs><pattern id="lk-idle${k}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(${at})"><line y2="6" style="stroke:var(--${k === 1 ? "grey" : "edge"});stroke-width:${1 + k}"/></pattern></defs>`;

// ---- sliders: a range, or one of a list (options), such as powers ----

export const slider = (key, label, value, min, max, show = String, step = 1) => ({ key, label, value, min, max, show, step });
export const choice = (key, label, value, options, show = String) => ({ ...slider(key, label, value, 0, options.length - 1, show), options });

/** A hundred steps of one factor; the value that is given takes the place of the one next to it. */
export function powers(key, label, value, min, max, show) {
  const factor = (max / min) ** 0.01, options = range(101).map((k) => +(min * factor ** k).toPrecision(3));
  options[Math.round(Math.log(value / min) / Math.log(factor))] = value;
  return choice(key, label, value, options, show);
}

/** Sliders of a link, as far as the data speaks of it, and the time that an all_reduce or an all_gather takes on such links. */
export const linkSliders = ({ latency, bandwidth }) => [powers("latency", "latency α", latency, 1e-7, 1e-3, seconds), ...(bandwidth ? [powers("bandwidth", "link", bandwidth, 1e7, 1e12, speed)] : [])];
export const collective = (b, { ranks, latency, bandwidth }, gathered) => (gathered ? (ranks - 1) * (latency + b / bandwidth) : 2 * (ranks - 1) * (latency + b / ranks / bandwidth));

function sliderMarkup({ key, label, min, max, step, show, options }, value) {
  const input = tag("input", { type: "range", min, max, step, value: options?.indexOf(value) ?? value, "data-key": key, "aria-valuetext": show(value) });
  return `<label>${escaped(label)} ${input} <output>${escaped(show(value))}</output></label>`;
}

const STYLE = `
.lk{font:13px/1.45 system-ui,sans-serif;max-width:1100px;min-width:300px;--soft:color-mix(in srgb,currentColor 22%,transparent);--grey:color-mix(in srgb,currentColor 68%,transparent);--edge:color-mix(in srgb,currentColor 50%,transparent);--bad:color-mix(in srgb,#e3170a 78%,currentColor)}
.lk header{display:flex;flex-wrap:wrap;gap:2px 14px;align-items:baseline}.lk header b{font-size:15px}.lk header span{color:var(--grey)}
.lk .bar{display:flex;flex-wrap:wrap;gap:4px 16px;align-items:center;margin:5px 0}.lk .bar label{display:inline-flex;flex-wrap:wrap;align-items:center;gap:0 6px}
.lk input[type=range]{width:112px;margin:0;accent-color:#0072b2;max-width:40vw}.lk .step input{width:190px}.lk .step output{min-width:7.5em}.lk output{font-variant-numeric:tabular-nums;min-width:3.6em}
.lk button,.lk select{font:inherit;color:inherit;background:transparent;border:1px solid var(--edge);border-radius:4px;padding:1px 8px;min-width:28px;cursor:pointer}.lk option{color:#000;background:#fff}
.lk :focus-visible{outline:2px solid #0072b2;outline-offset:2px}
.lk svg{display:block;overflow:visible;touch-action:pan-y}.lk svg [data-pick]{cursor:pointer}.lk svg text{pointer-events:none;fill:currentColor;font:12px system-ui,sans-serif}.lk svg .small{font-size:11px}.lk svg .tiny{font-size:9px}.lk svg .middle{text-anchor:middle}.lk svg .end{text-anchor:end}.lk svg .bold{font-weight:700}
.lk svg .grey{fill:var(--grey)}.lk svg path[class]{fill:none}.lk svg .rule{stroke:var(--grey)}.lk svg .soft{stroke:var(--soft)}.lk svg :is(.edge,.thin){stroke:currentColor}.lk svg .thin{stroke-width:.6}.lk .bad{color:var(--bad)}.lk svg .bad{stroke:currentColor;stroke-width:2.5;stroke-dasharray:5 3}.lk svg text.bad{fill:currentColor;stroke:none}.lk svg .now{stroke:currentColor;stroke-width:2}
.lk dl{display:flex;flex-wrap:wrap;gap:3px 20px;margin:6px 0}.lk dl div{display:flex;gap:6px}.lk dt,.lk dd{margin:0;float:none;width:auto}.lk dt{color:var(--grey);font-weight:400}.lk dd{font-weight:600;font-variant-numeric:tabular-nums}
.lk p{margin:4px 0;min-height:1.45em}.lk table{border-collapse:collapse;font-size:12px;margin:6px 0}.lk :is(th,td){border:1px solid var(--soft);padding:2px 7px;text-align:left}.lk th{font-weight:600}.lk [data-part=table]{overflow:auto}.lk [hidden]{display:none!important}
@media print{.lk{break-inside:avoid}.lk svg{height:auto}.lk button,.lk input,.lk label:has(select){display:none!important}}`;

const HELP = "Keys: ← → one step, Home and End, space plays, t shows the table, ? this line.";
const ICONS = [["first", "|◀", "first step"], ["back", "◀", "one step back"], ["play", "▶", "play"], ["next", "▶|", "one step on"], ["last", "▶▶|", "last step"]];

// ---- what is seen, as a file ----

const SAVED = ["svg", "png", "html"];
const LOOKS = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight", "text-anchor"];

/** A colour as programs other than browsers read it too. */
export const plainColour = (value) => value.replace(/color\(srgb (\S+) (\S+) ([^ )]+)(?: \/ (.*))?\)/, (_, r, g, b, a = 1) => `rgba(${[r, g, b].map((v) => Math.round(255 * v))},${a})`);

/** The picture on the ground it is seen on, with every look written out and words above it: an SVG document. */
function drawing(svg, words) {
  const copy = svg.cloneNode(true), looked = "text,[class],[style]", from = svg.querySelectorAll(looked), { width, height } = svg.getBoundingClientRect(), looks = (at, name) => plainColour(getComputedStyle(at).getPropertyValue(name));
  copy.querySelectorAll(looked).forEach((each, k) => each.setAttribute("style", LOOKS.map((name) => `${name}:${looks(from[k], name)}`).join(";")));
  let ground = svg;
  while (ground && looks(ground, "background-color").endsWith(" 0)")) ground = ground.parentElement;
  if (!ground) (ground = svg).style.background = "Canvas";
  const size = { width: width + 24, height: height + 44 };
  copy.style.overflow = "visible";
  return tag("svg", { xmlns: svg.namespaceURI, ...size, style: "font:13px system-ui,sans-serif" }, rect(0, 0, size.width, size.height, { fill: looks(ground, "background-color") }) + text(12, 20, words, "", { fill: looks(svg, "color") }) + tag("g", { transform: "translate(12 32)" }, new XMLSerializer().serializeToString(copy)));
}

/** The pixels of an SVG document at an address, two for each one of its own. */
async function pixels(source) {
  const image = new Image(), canvas = document.createElement("canvas");
  image.src = source;
  await image.decode();
  const size = [(canvas.width = 2 * image.width), (canvas.height = 2 * image.height)];
  canvas.getContext("2d").drawImage(image, 0, 0, ...size);
  return canvas.toDataURL();
}

/** A page with the figure as it stands. */
const pageOf = (mark, now) =>
  `<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">${tag("div", { class: "labkit-figure", "data-figure": mark, "data-now": JSON.stringify(now) })}<script type="module">${[...document.scripts].find((each) => each.text.includes('"' + mark + '"')).text}<\/script>`;

const PAPER = 720; // pixels of a page's width: what is drawn wider is shrunk to it, words and all

/** Bring a view to life inside root; returns { set(key, value), go(step) } for tests. */
export function mount(root, view, motion = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)")) {
  const now = JSON.parse(root.dataset.now ?? "{}");
  const values = Object.assign(Object.fromEntries(view.sliders.map((slider) => [slider.key, slider.value])), now.values);
  // Names of its own for arrows and stripes: where another figure is hidden, its are not painted.
  const mine = "$1lk" + Math.random();
  let step = now.step ?? view.begin ?? 0, timer = 0;
  const last = () => view.steps(values);
  const still = motion?.matches ?? false;
  const buttons = (of) => of.map(([act, words, name]) => tag("button", { type: "button", "data-act": act, title: name, "aria-label": name }, words)).join("");
  const speeds = [0.25, 0.5, 1, 2, 4].map((x) => tag("option", { selected: x === 1 && "" }, x)).join("");
  root.innerHTML = `<style>${STYLE}</style><div class="lk" role="group" aria-label="${escaped(view.title)}">
<header><b>${escaped(view.title)}</b><span>${escaped(view.source)}</span></header>
<div class="bar step" data-part="player">${buttons(ICONS)}
<label>${escaped(view.stepLabel ?? "step")} <input type="range" min="0" value="0" data-key="step"> <output></output></label>
<label>speed <select>${speeds}</select></label>
${buttons(Object.entries(view.buttons ?? {}))}<button type="button" data-act="table" aria-expanded="false">Table</button><button type="button" data-act="help" aria-label="keys" aria-expanded="false">?</button>${buttons(SAVED.map((kind) => [kind, "↓ " + kind, "save as " + kind]))}</div>
<div class="bar" data-part="sliders">${view.sliders.map((slider) => sliderMarkup(slider, values[slider.key])).join("")}</div>
<div data-part="stage" tabindex="0" role="group" aria-label="picture; arrow keys step"></div>
<div data-part="numbers"></div><p data-part="say" aria-live="polite"></p><p data-part="help" hidden>${HELP} ${view.help ?? ""}</p><div data-part="table" hidden></div></div>`;
  const part = (name) => root.querySelector(`[data-part="${name}"]`);
  const [player, stage] = ["player", "stage"].map(part);
  const bar = player.querySelector("input"), play = player.querySelector('[data-act="play"]');

  let atEnd = step >= last(); // and stays there when a slider or an edit makes more or fewer steps
  function paint(most = Infinity) {
    step = atEnd ? last() : Math.min(Math.max(step, 0), last());
    const width = Math.max(Math.min(stage.clientWidth || 760, most), 300), drawn = view.draw(values, step, width);
    const { svg, height, numbers, say, table } = drawn;
    stage.innerHTML = `<svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="xMinYMin" width="100%" height="${height}" role="img" aria-label="${escaped(say)}">${svg.replace(/([#"])lk/g, mine)}</svg>`;
    part("numbers").innerHTML = tag("dl", {}, numbers.map(([label, value, bad]) => // [] begins a row
      label ? tag("div", {}, tag("dt", {}, escaped(label)) + tag("dd", { "data-number": label, class: bad ? "bad" : false }, escaped(value))) : "</dl><dl>").join(""));
    part("say").ariaLive = timer ? "off" : "polite"; // while it plays, nobody could listen that fast
    if (part("say").textContent !== say) part("say").textContent = say;
    const cells = (row, k) => row.map((cell) => (k ? tag("td", {}, escaped(cell)) : tag("th", { scope: "col" }, escaped(cell)))).join("");
    part("table").innerHTML = tag("table", {}, table.map((row, k) => tag("tr", {}, cells(row, k))).join(""));
    bar.max = last();
    bar.value = step;
    bar.nextElementSibling.textContent = bar.ariaValueText = view.stepName?.(values, step) ?? `${step} of ${last()}`;
    Object.assign(root.dataset, { step, ...drawn.data });
  }
  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "▶";
    play.ariaLabel = play.title = still ? "one step on (reduced motion: nothing plays by itself)" : "play";
  }
  function go(to = step) {
    if (to !== step) atEnd = to >= last();
    step = to;
    paint();
  }
  const acts = {
    first: () => go(0),
    back: () => go(step - 1),
    next: () => go(step + 1),
    last: () => go(last()),
    play() {
      if (timer) return stop();
      go(step < last() ? step + 1 : 0);
      if (still) return;
      play.textContent = "❚❚";
      play.ariaLabel = play.title = "pause";
      const pace = () => (step < last() && root.isConnected ? go(step + 1) : stop());
      timer = setInterval(pace, 900 / player.querySelector("select").value);
    },
  };
  for (const name of ["table", "help"])
    acts[name] = () => {
      part(name).hidden = !part(name).hidden;
      root.querySelector(`[data-act="${name}"]`).ariaExpanded = !part(name).hidden;
    };
  for (const kind of SAVED)
    acts[kind] = async () => {
      const link = document.createElement("a"), source = kind === "html" ? pageOf(root.dataset.figure, { values, step }) : drawing(stage.firstChild, `${view.title} · ${view.source}`);
      link.download = `${view.title}.${kind}`;
      link.href = `data:${kind === "html" ? "text/html" : "image/svg+xml"},${encodeURIComponent(source)}`;
      if (kind === "png") link.href = await pixels(link.href);
      link.click();
      part("say").textContent = `Saved as ${link.download}.`;
    };
  const keys = { ArrowRight: "next", ArrowLeft: "back", Home: "first", End: "last", " ": "play", t: "table", "?": "help", "]": "next", "[": "back", ...view.keys };
  for (const [name, act] of Object.entries(view.acts ?? {})) acts[name] = () => go(act(values, step));

  // A mark with data-pick is chosen by a click or dragged along; the view says what that means.
  let held;
  stage.onpointerdown = (event) => {
    const mark = event.target.closest("[data-pick]");
    if (!mark || !view.pick) return;
    held = [mark, event.clientX];
    stage.setPointerCapture(event.pointerId);
  };
  stage.onpointercancel = () => {
    held = undefined;
    paint();
  };
  stage.onpointermove = (event) => {
    if (held && view.drags) held[0].style.transform = `translate(${event.clientX - held[1]}px)`;
  };
  stage.onpointerup = (event) => {
    if (!held) return;
    const [mark, from] = held, far = event.clientX - from;
    held = undefined;
    stop();
    go(view.pick(mark, Math.abs(far) > 4 ? far : 0, values, step));
  };

  // What the pointer is over; a view that wants to know says whether its picture changes.
  stage.onpointerover = stage.onpointerleave = ({ target }) => !held && view.hover?.(target, values) && paint();

  function run(act) {
    if (!acts[act]) return;
    if (act !== "play") stop();
    acts[act]();
  }
  root.onclick = (event) => run(event.target.closest("[data-act]")?.dataset.act);
  root.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || (event.key === "Enter" && event.shiftKey)) return;
    if (event.key !== "Tab" && event.key !== "Escape") event.stopPropagation(); // or the notebook takes a for "insert cell"
    const act = keys[event.key], at = event.target;
    if (!act || at.matches("input, select") || (at.matches("button") && event.key === " ")) return;
    event.preventDefault();
    run(act);
  };
  root.oninput = ({ target }) => {
    const slider = view.sliders.find(({ key }) => key === target.dataset.key), to = +target.value;
    if (target === bar) {
      stop();
      go(to);
    }
    if (!slider) return;
    values[slider.key] = slider.options ? slider.options[to] : to;
    target.nextElementSibling.textContent = target.ariaValueText = slider.show(values[slider.key]);
    paint();
  };
  globalThis.addEventListener?.("beforeprint", () => root.closest("[data-fitted]") || paint(PAPER)); // a deck has pages of its own
  globalThis.addEventListener?.("afterprint", () => paint());
  stop();
  let seen = 0;
  globalThis.ResizeObserver && new ResizeObserver(() => {
    if (stage.clientWidth && Math.abs(stage.clientWidth - seen) > 1) {
      seen = stage.clientWidth;
      paint();
    }
  }).observe(stage);
  paint();
  return { go, paint, values };
}

/** Start a view on every figure of this page with this mark that is not alive yet. */
export function start(mark, view, data) {
  for (const root of document.querySelectorAll(`.labkit-figure[data-figure="${mark}"]:not([data-live])`)) {
    root.dataset.live = "";
    mount(root, view(data));
  }
}
