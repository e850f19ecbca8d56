// Boxes, words and lines of a storyboard (labkit/widgets/storyboard.py) as markup.

import { hue, ink } from "../figure/colours.js";
import { rect, tag, text } from "../figure/markup.js";

const FAINT = 0.3;
const TEXT = 13; // pixels of letters where nothing else is said

/** As large as it was drawn; a slide says by how much larger (labkit/lessons/slides.js). */
const lettersOf = (size) => `font-size:calc(${size}px * var(--story-letters, 1))`;

/** A meaning of the language as a colour; tints stand for themselves. */
const colour = (meaning) => (meaning.startsWith("#") || meaning === "none" ? meaning : hue(meaning));

function box({ key, x, y, width, height, fill = "none", words, size = TEXT, edge = "ink", dashed, faint, hatched }) {
  const stroke = edge === "none" ? "none" : colour(faint ? "line" : edge);
  const looks = {
    fill: colour(fill),
    stroke,
    rx: 3,
    "stroke-dasharray": dashed && "4 3",
    "fill-opacity": faint && FAINT,
  };
  let inner = rect(x, y, width, height, looks);
  if (hatched) inner += rect(x, y, width, height, { fill: "url(#lk-idle0)", "pointer-events": "none" });
  if (words) {
    const read = fill === "none" || faint ? "" : ink(colour(fill)).style;
    inner += text(x + width / 2, y + height / 2 + 0.35 * size, words, "plain middle", {
      style: `${lettersOf(size)};${read}`,
    });
  }
  return key ? tag("g", { "data-key": key }, inner) : inner;
}

function line({ x, y, words: said, size = TEXT, anchor = "start", fill = "ink", bold }) {
  const style = `${lettersOf(size)};text-anchor:${anchor};fill:${colour(fill)}${bold ? ";font-weight:600" : ""}`;
  return text(x, y, said, "plain", { style });
}

function path({ points, stroke = "line", width = 2, dashed, arrow }) {
  const d = `M${points.map((point) => point.join(" ")).join("L")}`;
  const looks = { d, style: `fill:none;stroke:${colour(stroke)};stroke-width:${width}` };
  return tag("path", { ...looks, "stroke-dasharray": dashed && "5 4", "marker-end": arrow && "url(#lk-arrow)" });
}

const KINDS = { box, words: line, path };

export const shape = (given) => KINDS[given.kind](given);
