// The bars: in every pixel column each category has its exact share of the column's height, and idle stays empty. The
// edges of bars lie on pixels.

import { REGION } from "./kinds.js";
import { LEFT, windowOf } from "./layout.js";
import { shareMatrix } from "./shares.js";
import { snapEdges } from "./snapping.js";
import { stripShares } from "./strips.js";

const SEEN = 0.5; // pixels of a column, from which on a colour or an empty place is seen
const PALE = 0.1; // of the colour between the stripes of a hatched category, and in the dots of a dotted one
const HATCH = [6, 1]; // pixels from one stripe to the next, and of a stripe; labkit/widgets/palette.py
const DOTS = [5, 2]; // the same of dots

function rgb(colour) {
  const value = Number.parseInt(colour.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

const pack = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

/** Colours as the image holds them, solid and pale, and how part of a pixel is painted with one. */
function inksOf({ band, colours }) {
  const ground = rgb(band);
  const plain = colours.map(rgb);
  const pale = plain.map((colour) => colour.map((value, i) => Math.round(PALE * value + (1 - PALE) * ground[i])));
  const [g0, g1, g2] = ground;
  const blend = (under, [r, g, b], part) => {
    const blue = ((under >> 16) & 255) + part * (b - g2);
    const green = ((under >> 8) & 255) + part * (g - g1);
    const red = (under & 255) + part * (r - g0) + 0.5;
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  };
  return { empty: pack(ground), plain, pale, solid: plain.map(pack), light: pale.map(pack), blend };
}

/** The image of a row this high, and the shares of its columns; kept from frame to frame. */
function prepare(state, columns, height, categories) {
  if (state.imageWidth !== columns) [state.imageWidth, state.images] = [columns, new Map()];
  if (!state.images.has(height)) state.images.set(height, new ImageData(columns, height));
  state.image = state.images.get(height);
  state.pixels = new Uint32Array(state.image.data.buffer);
  if (state.shares?.length !== columns * categories) state.shares = new Float64Array(columns * categories);
}

/** Paint a hatched or dotted category's part of a column, from `bottom` up to `top`; both are real numbers. */
function paintPattern({ pixels, image: { width }, hatched, ratio }, inks, c, x, top, bottom) {
  const [pitch, stripe] = HATCH.map((each) => each * Math.max(1, Math.round(ratio))); // as all else
  for (let y = Math.floor(top); y < bottom; y++) {
    const part = Math.min(y + 1, bottom) - Math.max(y, top);
    const isDot = x % DOTS[0] < DOTS[1] && y % DOTS[0] < DOTS[1];
    const isPale = hatched[c] ? (x + y) % pitch >= stripe : isDot;
    paintPixel(
      pixels,
      y * width + x,
      part,
      inks,
      isPale ? inks.light[c] : inks.solid[c],
      (isPale ? inks.pale : inks.plain)[c],
    );
  }
}

/** Paint a part of a pixel. */
function paintPixel(pixels, at, part, { blend }, solid, colour) {
  pixels[at] = part > 0.999 ? solid : blend(pixels[at], colour, part);
}

/** Paint the columns of one row: category on category, from the bottom up. */
function paintColumns(state, inks, categories, present) {
  const { shares, image, pixels, hatched, dotted, marks } = state;
  const { width, height } = image;
  const isPlain = hatched.map((each, c) => !each && !dotted[c]);
  const seen = new Uint8Array(categories);
  pixels.fill(inks.empty);
  for (let x = 0; x < width; x++) {
    let bottom = height;
    for (const c of present) {
      const share = shares[x * categories + c];
      if (share <= 0) continue;
      if (share * height > SEEN) seen[c] = 1;
      const top = Math.max(bottom - share * height, 0);
      if (isPlain[c]) paintPlain(pixels, width, inks, c, x, top, bottom);
      else paintPattern(state, inks, c, x, top, bottom);
      bottom = top;
    }
  }
  for (const c of present) if (seen[c]) marks.add(String(c));
}

/** Paint a plain category's part of a column: its whole pixels, and parts of those at its ends. */
function paintPlain(pixels, width, inks, c, x, top, bottom) {
  const first = Math.ceil(top);
  const last = Math.floor(bottom);
  const solid = inks.solid[c];
  for (let at = first * width + x, stop = last * width + x; at < stop; at += width) pixels[at] = solid;
  if (first > last) paintPixel(pixels, last * width + x, bottom - top, inks, solid, inks.plain[c]);
  else {
    if (first > top) paintPixel(pixels, (first - 1) * width + x, first - top, inks, solid, inks.plain[c]);
    if (last < bottom) paintPixel(pixels, last * width + x, bottom - last, inks, solid, inks.plain[c]);
  }
}

/** What is painted of a row: its shares, with the edges of bars on pixels; of a strip those of all its run's ranks. */
export function sharesOf(run, row, [t0, t1], columns, categories, shares) {
  if (row.of) return stripShares(run, row, t0, t1, columns, categories, shares);
  return snapEdges(shareMatrix(run, row, t0, t1, columns, categories, shares), columns, categories);
}

/** Paint every row's pixel columns into one image. */
export function paintShares(context, state) {
  const { layout, runs, ratio, theme, right } = state;
  const columns = Math.round((right - LEFT) * ratio);
  const categories = runs[0].categories.length;
  if (columns < 1) return;
  const inks = inksOf(theme);
  const present = runs.map(({ owned }) => [...owned].sort((a, b) => a - b));
  for (const place of layout.bars) {
    if (place.row.lane === REGION) continue;
    const [top, bottom] = [place.y, place.y + place.bar].map((y) => Math.round(y * ratio)); // tracks leave no line
    prepare(state, columns, bottom - top, categories);
    state.shares.fill(0);
    sharesOf(runs[place.run], place.row, windowOf(state, place.run), columns, categories, state.shares);
    paintColumns(state, inks, categories, present[place.run]);
    context.putImageData(state.image, Math.round(LEFT * ratio), top);
  }
}
