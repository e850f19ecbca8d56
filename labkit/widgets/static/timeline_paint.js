// What the canvas shows: exact shares in every pixel column, and over them names, arrows, path, outlines, cursor.
// Everything takes the view's `state`; nothing here listens to events.

export const LEFT = 112, RIGHT = 54, TOP = 22;
const LANES = ["compute", "comm", "host"];
const FONT = "11px system-ui, sans-serif";

/** Return where every row lies, in CSS pixels: bars 3 to 16 high, a rank's memory under its lanes, run under run. */
export function layOut(runs, overlay) {
  const shown = overlay ? runs.slice(0, 1) : runs;
  const count = shown.reduce((sum, run) => sum + run.rows.length, 0);
  const bar = Math.max(3, Math.min(16, Math.floor(700 / Math.max(count, 1)) - 2));
  const laneGap = bar >= 12 ? 2 : bar >= 6 ? 1 : 0, rankGap = bar >= 12 ? 9 : bar >= 6 ? 5 : 3;
  const rows = [], memories = [], heads = [];
  let y = TOP;
  shown.forEach((run, number) => {
    if (shown.length > 1) {
      heads.push({ y, text: run.name });
      y += 18;
    }
    let rank = -1, first = y;
    const remember = () => {
      if (rank < 0 || !run.memory.includes(rank) || bar < 12) return;
      memories.push({ run: number, rank, y, height: bar + 4 });
      y += bar + 4 + laneGap;
    };
    run.rows.forEach((row) => {
      if (row.rank !== rank) {
        remember();
        if (rank >= 0) y += rankGap;
        [rank, first] = [row.rank, y];
      }
      rows.push({ run: number, row, y, bar, first: y === first });
      y += bar + laneGap;
    });
    remember();
    y += rankGap;
  });
  return { rows, memories, heads, bar, height: Math.max(y, TOP + 24) };
}

function rgb(colour) {
  const value = parseInt(colour.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** Paint every row's pixel columns into one image: a category's share is its part of the column's height. */
export function paintShares(context, state) {
  const { layout, runs, ratio, theme, width } = state;
  const columns = Math.round((width - LEFT - RIGHT) * ratio), categories = runs[0].categories.length;
  const height = Math.round(layout.bar * ratio);
  if (columns < 1) return;
  if (state.image?.width !== columns || state.image.height !== height) {
    state.image = new ImageData(columns, height);
    state.pixels = new Uint32Array(state.image.data.buffer);
  }
  if (state.shares?.length !== columns * categories) state.shares = new Float64Array(columns * categories);
  const pack = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  const ground = rgb(theme.band), plain = theme.colours.map(rgb);
  const pale = plain.map((colour) => colour.map((value, i) => Math.round(0.3 * value + 0.7 * ground[i])));
  const solid = plain.map(pack), light = pale.map(pack), empty = pack(ground);
  const [g0, g1, g2] = ground;
  const blend = (under, [r, g, b], part) =>
    ((255 << 24) | (((under >> 16) & 255) + part * (b - g2)) << 16 | (((under >> 8) & 255) + part * (g - g1)) << 8 | ((under & 255) + part * (r - g0) + 0.5)) >>> 0;
  const { pixels, shares } = state;
  for (const place of layout.rows) {
    const [t0, t1] = windowOf(state, place.run);
    shares.fill(0);
    shareMatrix(runs[place.run], place.row, t0, t1, columns, categories, shares);
    pixels.fill(empty);
    for (let x = 0; x < columns; x++) {
      const at = x * categories;
      let bottom = height; // pixels of the column still free, a real number
      for (let c = 0; c < categories; c++) {
        const share = shares[at + c];
        if (share <= 0) continue;
        const top = Math.max(bottom - share * height, 0), hatched = state.hatched[c];
        for (let y = Math.floor(top); y < bottom; y++) {
          const part = Math.min(y + 1, bottom) - Math.max(y, top), index = y * columns + x;
          const striped = hatched && (x + y) % 6 >= 3;
          if (part > 0.999) pixels[index] = striped ? light[c] : solid[c];
          else pixels[index] = blend(pixels[index], striped ? pale[c] : plain[c], part);
        }
        bottom = top;
      }
    }
    context.putImageData(state.image, Math.round(LEFT * ratio), Math.round(place.y * ratio));
  }
}

/** Return by how much a run is shifted: one shown beside another by its offset. */
export const shiftOf = (state, run) => (run ? state.offset : 0);

/** Return the part of a run that is in view. */
export const windowOf = (state, run) => state.view.map((time) => time - shiftOf(state, run));

/** Return that part of it in which the run had begun and not ended, where it stands beside another: a shorter run is not idle after its end. */
export function ownWindow(state, run) {
  const [a, b] = windowOf(state, run), { span } = state.runs[run];
  if (state.runs.length < 2) return [a, b];
  const from = Math.min(Math.max(a, 0), span);
  return [from, Math.max(Math.min(b, span), from)];
}

/** Return how many ns a pixel stands for; and where a time lies, and which time lies there. */
export const pixelOf = ({ view, width }) => (view[1] - view[0]) / (width - LEFT - RIGHT);
export const xOf = (state, time) => LEFT + (time - state.view[0]) / pixelOf(state);
export const timeOf = (state, x) => state.view[0] + (x - LEFT) * pixelOf(state);
/** Return a state in which the whole lies in view, as the strip shows it. */
export const wholeOf = (state) => ({ ...state, view: state.whole });

/** Clear the ground, paint `pixels` on it, and set the pen for CSS pixels. */
function begin(context, state, height, pixels) {
  const { ratio, theme, width } = state;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, width * ratio, height * ratio);
  pixels(context, state);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = FONT;
  context.textBaseline = "middle";
}

/** Paint all there is; `shares` paints the bars. */
export function paint(context, state, shares = paintShares) {
  const { layout, width, runs } = state;
  begin(context, state, layout.height, shares);
  paintAxis(context, state);
  paintRowNames(context, state);
  for (const memory of layout.memories) paintMemory(context, state, memory);
  context.save();
  context.beginPath();
  context.rect(LEFT, 0, width - LEFT - RIGHT, layout.height);
  context.clip();
  paintNames(context, state);
  if (state.overlay) paintOutline(context, state);
  if (state.arrows) paintArrows(context, state);
  if (state.showPath) runs.forEach((run, number) => run.path && paintPath(context, state, number));
  paintClockErrors(context, state);
  paintMarks(context, state);
  context.restore();
}

function paintAxis(context, state) {
  const { view, theme, width, layout, overlay } = state, step = tickStep(90 * pixelOf(state), 1);
  if (!state.runs.some(({ span }) => span)) return;
  const [unit, size] = unitOf(Math.min(view[1], step * 1e4));
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / size) - 1e-9)));
  context.fillStyle = theme.quiet;
  context.textAlign = "center";
  for (let tick = Math.ceil(view[0] / step - 1e-9); tick * step <= view[1]; tick++) {
    const x = xOf(state, tick * step);
    context.fillStyle = theme.grid;
    context.fillRect(Math.round(x), TOP - 5, 1, layout.height - TOP + 1);
    context.fillStyle = theme.quiet;
    const words = (tick * step / size).toFixed(digits), half = context.measureText(words).width / 2;
    if (x - half > LEFT - 14 && x + half < width - RIGHT + 20) context.fillText(words, x, 8);
  }
  context.textAlign = "right";
  context.fillText(`time (${unit})`, LEFT - 16, 8);
  if (layout.bar >= 9) context.fillText(overlay ? "ratio" : "busy", width - 6, 8);
}

function paintRowNames(context, state) {
  const { layout, theme, width, runs } = state;
  context.fillStyle = theme.ink;
  context.textAlign = "left";
  for (const head of layout.heads) context.fillText(head.text, 4, head.y + 8);
  const high = layout.bar >= 9;
  let last = -100;
  for (const place of layout.rows) {
    const { row, y, bar, run } = place;
    context.textAlign = "left";
    if (place.first && y - last >= 12) {
      context.fillStyle = theme.ink;
      context.fillText(`rank ${row.rank}`, 4, y + bar / 2);
      last = y;
    }
    if (!high) continue;
    context.fillStyle = theme.quiet;
    context.textAlign = "right";
    context.fillText(LANES[row.lane], LEFT - 5, y + bar / 2);
    const [t0, t1] = ownWindow(state, run), busy = rowBusy(runs[run], row, t0, t1);
    let text = t1 > t0 ? `${((100 * busy) / (t1 - t0)).toFixed(0)} %` : "–";
    if (state.overlay) {
      const expected = rowBusy(runs[1], twinOf(runs[1], row), ...windowOf(state, 1));
      text = expected ? `× ${(busy / expected).toPrecision(3)}` : "–";
    }
    context.fillText(text, width - 6, y + bar / 2);
  }
}

/** Return the row of another run that stands for the same lane of the same rank. */
export const twinOf = (run, { rank, lane }) => run.ranks.get(rank)?.lanes[lane];

/** Draw what a rank held over time, all to one scale, with an arrow to the most it held. */
function paintMemory(context, state, { y, height, rank, run }) {
  const { width, theme, runs } = state, columns = Math.round(width - LEFT - RIGHT), base = y + height;
  const scale = (height - 1) / Math.max(...runs.flatMap((each) => [...each.held.values()].map(({ most }) => most)), 1);
  const memory = runs[run].held.get(rank), x = xOf(state, memory.peak + shiftOf(state, run));
  context.fillStyle = theme.memory;
  context.beginPath();
  context.moveTo(LEFT, base);
  memoryColumns(memory, ...windowOf(state, run), columns).forEach((value, x) => {
    for (const side of [0, 1]) context.lineTo(LEFT + x + side, base - value * scale);
  });
  context.lineTo(LEFT + columns, base);
  context.fill();
  context.strokeStyle = context.fillStyle = theme.ink;
  if (x >= LEFT && x <= LEFT + columns) arrow(context, x, base, x, base - memory.most * scale, 1);
  context.fillStyle = theme.quiet;
  context.textAlign = "right";
  context.fillText("memory, ↑ peak", LEFT - 5, y + height / 2);
  context.fillText(bytesText(memory.most), width - 2, y + height / 2);
}

/** Call `draw` with each event in view that is at least `least` pixels wide, and its begin and width in pixels. */
export function eachWide(state, { run: number, row }, least, draw) {
  const run = state.runs[number], [t0, t1] = windowOf(state, number), pixel = pixelOf(state);
  const stop = lowerBound(run.segmentStart, row.from, row.to, t1);
  for (let s = Math.max(row.from, lowerBound(run.segmentStart, row.from, row.to, t0) - 1); s < stop; s++) {
    const wide = (run.segmentEnd[s] - run.segmentStart[s]) / pixel;
    if (wide >= least) draw(run.owner[s], LEFT + (run.segmentStart[s] - t0) / pixel, wide);
  }
}

function paintNames(context, state) {
  if (state.layout.bar < 12) return;
  context.textAlign = "left";
  for (const place of state.layout.rows)
    eachWide(state, place, 14, (event, x, wide) => {
      const run = state.runs[place.run], [name, , category, peer] = run.labels[run.label[event]];
      if (state.hatched[category]) return;
      const left = Math.max(x, LEFT), room = Math.min(x + wide, state.width - RIGHT) - left - 6;
      const full = peer >= 0 ? `${name} ${peer}` : name;
      const text = [full, name, /^[A-Za-z]+/.exec(name)?.[0].slice(0, 1) ?? ""].find((each) => each && measure(context, state, each) <= room);
      if (!text) return;
      context.fillStyle = state.theme.onBar[category];
      context.fillText(text, left + 3, place.y + place.bar / 2 + 0.5);
    });
}

function measure(context, state, text) {
  let width = state.widths.get(text);
  if (width === undefined) state.widths.set(text, (width = context.measureText(text).width));
  return width;
}

/** Draw the second run's bars as dashed outlines over the first one's. */
function paintOutline(context, state) {
  context.beginPath();
  for (const { row, y, bar } of state.layout.rows) {
    const twin = twinOf(state.runs[1], row);
    let drawn = 0;
    if (twin) eachWide(state, { run: 1, row: twin }, 3, (event, x, wide) => drawn++ < 1500 && context.rect(Math.round(x) + 0.5, y - 1.5, Math.round(wide), bar + 2));
  }
  // Dashes of ink, gaps of ground: one of the two stands out from a bar of any colour.
  ["ink", "paper"].forEach((colour, i) => {
    context.strokeStyle = state.theme[colour];
    context.setLineDash([3, 3]);
    context.lineDashOffset = 3 * i;
    context.stroke();
  });
  context.setLineDash([]);
}

/** Return where the row of an event lies, if it has one. */
export const placeOf = (state, run, event) => state.layout.rows.find((place) => place.run === run && event >= place.row.first && event < place.row.last);

const MOST_ARROWS = 300;

/** Draw messages from where they leave to where they arrive; where they are many, only those of the event in focus. */
function paintArrows(context, state) {
  state.runs.forEach((run, number) => {
    const [t0, t1] = windowOf(state, number), few = [];
    const focus = state.focus && state.focus.run === number ? run.flowsOf.get(state.focus.event) ?? [] : [];
    for (let f = 0; f < run.flow_from.length && few.length <= MOST_ARROWS; f++)
      if (run.start[run.flow_from[f]] < t1 && run.end[run.flow_to[f]] > t0) few.push(f);
    const crowded = few.length > MOST_ARROWS || state.layout.bar < 8;
    if (number === 0) state.crowded = crowded;
    for (const f of crowded ? focus : few) {
      const from = placeOf(state, number, run.flow_from[f]), to = placeOf(state, number, run.flow_to[f]);
      if (!from || !to) continue;
      const served = run.labels[run.label[run.flow_to[f]]][1] === "rpc_serve";
      const leaves = run.start[run.flow_from[f]], arrives = (served ? run.start : run.end)[run.flow_to[f]];
      const error = Math.max(run.errorOf(from.row.rank), run.errorOf(to.row.rank));
      const back = leaves - arrives;
      context.strokeStyle = context.fillStyle = back > error ? state.theme.alarm : back > 0 ? state.theme.quiet : state.theme.arrow;
      const shift = shiftOf(state, number), down = to.y > from.y;
      arrow(context, xOf(state, leaves + shift), from.y + (down ? from.bar : 0), xOf(state, arrives + shift), to.y + (down ? 0 : to.bar), focus.includes(f) ? 2 : 1);
    }
  });
}

function arrow(context, x0, y0, x1, y1, thick) {
  const angle = Math.atan2(y1 - y0, x1 - x0);
  context.lineWidth = thick;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
  context.beginPath();
  context.moveTo(x1, y1);
  for (const side of [-0.4, 0.4]) context.lineTo(x1 - 7 * Math.cos(angle + side), y1 - 7 * Math.sin(angle + side));
  context.fill();
  context.lineWidth = 1;
}

/** Draw the critical path: along the upper edge of a rank's rows, and across where it changes ranks. */
function paintPath(context, state, run) {
  const { path_start: starts, path_end: ends, path_from: from, path_to: to } = state.runs[run].path;
  const tops = new Map(), shift = shiftOf(state, run), [t0, t1] = windowOf(state, run);
  for (const place of state.layout.rows) if (place.run === run && place.first) tops.set(place.row.rank, place.y - 3);
  context.strokeStyle = state.theme.path;
  context.lineWidth = 3;
  context.lineJoin = "round";
  context.beginPath();
  let pen = null;
  for (let i = lowerBound(ends, 0, ends.length, t0); i < starts.length && starts[i] < t1; i++) {
    const y0 = tops.get(from[i]), y1 = tops.get(to[i]);
    if (y0 === undefined || y1 === undefined) {
      pen = null;
      continue;
    }
    const x0 = Math.max(xOf(state, starts[i] + shift), -10), x1 = Math.min(xOf(state, ends[i] + shift), state.width + 10);
    if (pen !== y0) context.moveTo(x0, y0);
    context.lineTo(x0, y1);
    context.lineTo(x1, y1);
    pen = y1;
  }
  context.stroke();
  context.lineWidth = 1;
}

/** Draw how far a clock may be off, as whiskers at the edges of bars wide enough to carry them. */
function paintClockErrors(context, state) {
  context.beginPath();
  for (const place of state.layout.rows) {
    const reach = state.runs[place.run].errorOf(place.row.rank) / pixelOf(state);
    if (reach < 1.5) continue;
    const y = place.y + (place.bar < 12 ? place.bar / 2 : place.bar - 2); // under the name
    eachWide(state, place, Math.min(reach, 12), (event, x, wide) => {
      for (const edge of [x, x + wide]) {
        context.moveTo(edge - reach, y);
        context.lineTo(edge + reach, y);
        for (const end of [edge - reach, edge + reach]) context.moveTo(end, y - 3), context.lineTo(end, y + 3);
      }
    });
  }
  for (const [colour, thick] of [[state.theme.paper, 3], [state.theme.quiet, 1]]) {
    context.strokeStyle = colour;
    context.lineWidth = thick;
    context.stroke();
  }
}

/** Draw the event in focus, the measured interval and the cursor. */
function paintMarks(context, state) {
  const { layout, theme, focus, measured } = state;
  if (measured) {
    const [a, b] = measured.map((time) => xOf(state, time));
    context.fillStyle = theme.selection;
    context.fillRect(a, TOP - 4, b - a, layout.height);
    context.fillStyle = theme.ink;
    for (const x of [a, b]) context.fillRect(Math.round(x), TOP - 4, 1, layout.height);
    const text = timeText(measured[1] - measured[0]), wide = context.measureText(text).width + 8;
    const left = Math.max(LEFT, Math.min((a + b - wide) / 2, state.width - RIGHT - wide));
    context.fillStyle = theme.ink;
    context.fillRect(left, layout.height - 18, wide, 16);
    context.fillStyle = theme.paper;
    context.textAlign = "left";
    context.fillText(text, left + 4, layout.height - 10);
  }
  if (focus) {
    const place = placeOf(state, focus.run, focus.event), run = state.runs[focus.run];
    if (place) {
      const shift = shiftOf(state, focus.run);
      const x0 = xOf(state, run.start[focus.event] + shift), x1 = xOf(state, run.end[focus.event] + shift);
      // A frame in a colour no bar has, set off from bars of any colour by the ground.
      for (const [out, thick, colour] of [[1, 2, theme.paper], [2.5, 2, theme.alarm]]) {
        context.strokeStyle = colour;
        context.lineWidth = thick;
        context.strokeRect(x0 - out, place.y - out, Math.max(x1 - x0, 1) + 2 * out, place.bar + 2 * out);
      }
      context.lineWidth = 1;
    }
  }
  if (state.cursor !== null) {
    context.fillStyle = theme.ink;
    context.fillRect(Math.round(xOf(state, state.cursor)), TOP - 4, 1, layout.height);
  }
}

const STRIP = 26;

/** Paint each whole run small, one under the other, with the part in view marked. */
export function paintOverview(context, state) {
  const { theme, runs } = state, high = STRIP / runs.length;
  begin(context, state, STRIP, paintBusy);
  const [a, b] = state.view.map((time) => xOf(wholeOf(state), time));
  context.fillStyle = theme.selection;
  context.fillRect(a, 0, Math.max(b - a, 2), STRIP);
  context.strokeStyle = theme.ink;
  context.strokeRect(a + 0.5, 0.5, Math.max(b - a - 1, 2), STRIP - 1);
  context.fillStyle = theme.quiet;
  context.textAlign = "right";
  runs.forEach(({ name }, number) => context.fillText(name || "whole run", LEFT - 5, high * (number + 0.5), LEFT - 9));
}

/** Paint what share of its rows each run fills in every pixel column. */
function paintBusy(context, state) {
  const { width, ratio, theme, runs, whole, offset } = state, high = (STRIP / runs.length) * ratio;
  const columns = Math.max(Math.round((width - LEFT - RIGHT) * ratio), 1), left = Math.round(LEFT * ratio);
  const key = [columns, whole, offset, ...runs.map((run) => run.start.length)].join();
  if (state.overviewOf !== key) {
    state.overviewOf = key;
    state.overviewBusy = runs.map((run, number) => {
      const busy = new Float64Array(columns), rows = run.rows.filter(({ lane }) => lane < 2), window = windowOf(wholeOf(state), number);
      const plain = { ...run, category: new Uint8Array(run.start.length) }; // all of one category
      for (const row of rows) shareMatrix(plain, row, ...window, columns, 1, busy);
      return busy.map((sum) => sum / rows.length);
    });
  }
  context.fillStyle = theme.quiet;
  state.overviewBusy.forEach((shares, number) => shares.forEach((share, x) => {
    const tall = (high - 4 * ratio) * share;
    context.fillRect(left + x, high * (number + 1) - 2 * ratio - tall, 1, tall);
  }));
}
