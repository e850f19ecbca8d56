// Colours: mixed, written on, and as other programs read them.

const LINE_COLOURS = ["#0072b2", "#d55e00", "#56b4e9", "#999999", "#332288", "#ddcc77", "#661100"];
const STROKES = ["currentColor", ...LINE_COLOURS.map((colour) => `color-mix(in srgb,${colour} 72%,currentColor)`)];
const DASHES = ["", "7 3", "2 3", "7 3 2 3", "12 3", "4 2", "1 2", "9 2 1 2"];

/** Red, green and blue of "#rrggbb". */
const rgb = (hex) => [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));

/** Black or white, whichever stands out more on a colour. */
export function inkOn(hex) {
  const [r, g, b] = rgb(hex).map((value) => (value / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
}

/** The attribute of words that stand on a colour. */
export const ink = (fill) => ({ style: `fill:${inkOn(fill)}` });

/** A colour between two, at a share of 0 to 1. */
export function between(from, to, share) {
  const end = rgb(to);
  const inside = Math.min(Math.max(share, 0), 1);
  const mixed = rgb(from).map((value, at) => Math.round(value + (end[at] - value) * inside));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

/** The style of the k-th line of a picture, told apart by colour and by dashes. */
export const strokeOf = (k, width = 2) =>
  `stroke:${STROKES[k % 8]};fill:none;stroke-width:${width};stroke-dasharray:${DASHES[k % 8]}`;

/** A colour as programs other than browsers read it too. */
export const plainColour = (value) =>
  value.replace(/color\(srgb (\S+) (\S+) ([^ )]+)(?: \/ (.*))?\)/, (_, r, g, b, alpha = 1) => {
    const parts = [r, g, b].map((part) => Math.round(255 * part));
    return `rgba(${parts},${alpha})`;
  });
