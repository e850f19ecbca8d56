// The part in view as an SVG document, with all that the canvas shows.

import { REGION } from "./kinds.js";
import { LEFT, windowOf } from "./layout.js";
import { paint } from "./paint.js";
import { sharesOf } from "./paint_shares.js";

const NAMES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const ANCHORS = { right: "end", center: "middle" };

export const escapeXml = (text) => String(text).replace(/[&<>"]/g, (character) => NAMES[character]);

const near = (...numbers) => numbers.map((number) => Number(number.toFixed(2))).join(" ");
const box = (x, y, wide, high) => `M${near(x, y)}h${near(wide)}v${near(high)}h${near(-wide)}z`;

/** What `paint` takes for a canvas; it writes SVG into `parts`. */
class SvgPen {
  constructor() {
    this.parts = [];
    this.path = "";
    this.dashes = "";
    this.lineWidth = 1;
  }

  setTransform() {}

  save() {}

  measureText(words) {
    return { width: 6 * words.length };
  }

  clip() {
    this.parts.push('<g clip-path="url(#clip)">');
  }

  restore() {
    this.parts.push("</g>");
  }

  beginPath() {
    this.path = "";
  }

  moveTo(x, y) {
    this.path += `M${near(x, y)}`;
  }

  lineTo(x, y) {
    this.path += `L${near(x, y)}`;
  }

  rect(x, y, wide, high) {
    this.path += box(x, y, wide, high);
  }

  setLineDash(lengths) {
    this.dashes = lengths.join(" ");
  }

  fillShape(d) {
    this.parts.push(`<path d="${d}" fill="${this.fillStyle}"/>`);
  }

  strokeShape(d) {
    const line = `stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}" stroke-dasharray="${this.dashes}"`;
    this.parts.push(`<path d="${d}" fill="none" ${line}/>`);
  }

  fill() {
    this.fillShape(this.path);
  }

  fillRect(x, y, wide, high) {
    this.fillShape(box(x, y, wide, high));
  }

  stroke() {
    this.strokeShape(this.path);
  }

  strokeRect(x, y, wide, high) {
    this.strokeShape(box(x, y, wide, high));
  }

  fillText(words, x, y) {
    const place = `x="${near(x)}" y="${near(y)}" text-anchor="${ANCHORS[this.textAlign] ?? "start"}"`;
    const look = `dominant-baseline="central" fill="${this.fillStyle}"`;
    this.parts.push(`<text ${place} ${look}>${escapeXml(words)}</text>`);
  }
}

/** [first column, the one after the last, shares] of columns that are alike, to a thousandth. */
function* alikeColumns(shares, columns, categories) {
  const column = (x) =>
    shares.subarray(x * categories, (x + 1) * categories).map((share) => Math.round(share * 1000) / 1000);
  for (let x = 0; x < columns;) {
    const here = column(x);
    let next = x + 1;
    while (next < columns && column(next).every((share, c) => share === here[c])) next++;
    yield [x, next, here];
    x = next;
  }
}

const fillOf = ({ hatched, dotted, theme }, c) => {
  if (hatched[c]) return "url(#hatch)";
  return dotted[c] ? "url(#dots)" : theme.colours[c];
};

/** Write for each row the columns of equal shares as rectangles. */
function shareRects(pen, state) {
  const { layout, runs, right } = state;
  const columns = right - LEFT;
  const categories = runs[0].categories.length;
  for (const { run, row, y, bar } of layout.bars) {
    if (row.lane === REGION) continue;
    const empty = new Float64Array(columns * categories);
    const shares = sharesOf(runs[run], row, windowOf(state, run), columns, categories, empty);
    for (const [x, next, here] of alikeColumns(shares, columns, categories)) {
      let bottom = y + bar;
      here.forEach((share, c) => {
        if (!share) return;
        bottom -= share * bar;
        pen.fillStyle = fillOf(state, c);
        pen.fillRect(LEFT + x, bottom, next - x, share * bar);
      });
    }
  }
}

/** The pattern of hatched bars, and the frame of what is in view. */
function definitions({ layout, theme, right, hatched, dotted }) {
  const colour = theme.colours[hatched.indexOf(true)];
  return (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">' +
    `<rect width="1" height="6" fill="${colour}"/></pattern>` +
    `<pattern id="dots" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="5" ` +
    `fill="${theme.colours[dotted.indexOf(true)]}"/><rect width="2" height="2" fill="${theme.band}"/></pattern>` +
    `<clipPath id="clip"><path d="M${LEFT} 0H${right}V${layout.height}H${LEFT}z"/></clipPath></defs>`
  );
}

/** The part in view as SVG. */
export function toSvg(state) {
  const pen = new SvgPen();
  paint(pen, { ...state, ratio: 1, marks: new Set() }, shareRects);
  const { layout, width } = state;
  const size = `width="${width}" height="${layout.height}" font-family="sans-serif" font-size="12"`;
  const title = `<title>${escapeXml(state.summary)}</title>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${title}${definitions(state)}${pen.parts.join("")}</svg>`;
}
