// Colours: mixed, written on, and as other programs read them.

import language from "../language.json" with { type: "json" };

const STROKES = ["currentColor", ...language.series.map((colour) => `color-mix(in srgb,${colour} 72%,currentColor)`)];

/** Red, green and blue of "#rrggbb". */
const rgb = (hex) => [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));

/** Black or white, whichever stands out more on a colour. */
export function inkOn(hex) {
  const [r, g, b] = rgb(hex).map((value) => (value / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
}

/** The colour of a meaning of the visual language, on the page's ground. */
export const hue = (meaning) => `var(--lk-${meaning})`;

/** The colours of a gradient that is not late at all, and of the latest. */
export const [FRESH, STALE] = language.staleness;

/** The tint of a chunk or a bucket, the same on every ground. */
export const tintOf = (k) => language.tints[k % language.tints.length];

/** The letter of a chunk or a bucket: A to Z, then A1 to Z1. */
export const letterOf = (k) => String.fromCharCode(65 + (k % 26)) + (k < 26 ? "" : Math.floor(k / 26));

/** The attribute of words that stand on a colour. */
export function ink(fill) {
  return { style: `fill:${fill.startsWith("var(") ? fill.replace("--lk-", "--lk-on-") : inkOn(fill)}` };
}

/** A colour between two, at a share of 0 to 1. */
export function between(from, to, share) {
  const end = rgb(to);
  const inside = Math.min(Math.max(share, 0), 1);
  const mixed = rgb(from).map((value, at) => Math.round(value + (end[at] - value) * inside));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

/** The style of the k-th line of a picture, told apart by colour and by dashes. */
export const strokeOf = (k, width = 2) =>
  `stroke:${STROKES[k % 8]};fill:none;stroke-width:${width};stroke-dasharray:${language.dashes[k % 8]}`;

/** A colour as programs other than browsers read it too. */
export const plainColour = (value) =>
  value.replace(/color\(srgb (\S+) (\S+) ([^ )]+)(?: \/ (.*))?\)/, (_, r, g, b, alpha = 1) => {
    const parts = [r, g, b].map((part) => Math.round(255 * part));
    return `rgba(${parts},${alpha})`;
  });
