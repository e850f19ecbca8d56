// What is seen, as a file: a drawing, its pixels, or a page with the figure as it stands.

import { plainColour } from "./colours.js";
import { escaped, rect, tag, text } from "./markup.js";

const LOOKED_AT = "text,[class],[style],[fill],[stroke]";
const LOOKS = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "opacity",
  "font-size",
  "font-weight",
  "text-anchor",
];

const lookOf = (element, name) => plainColour(getComputedStyle(element).getPropertyValue(name));

/** The nearest element around a picture that has a ground; the picture itself gets one where none has. */
function groundUnder(svg) {
  let element = svg;
  while (element && lookOf(element, "background-color").endsWith(" 0)")) element = element.parentElement;
  if (element) return element;
  svg.style.background = "Canvas";
  return svg;
}

/** A copy of a picture with every look written out, for programs that know no style sheet of ours. */
function writtenOut(svg) {
  const copy = svg.cloneNode(true);
  const from = svg.querySelectorAll(LOOKED_AT);
  copy.querySelectorAll(LOOKED_AT).forEach((element, k) => {
    element.setAttribute("style", LOOKS.map((name) => `${name}:${lookOf(from[k], name)}`).join(";"));
    for (const name of ["fill", "stroke"]) {
      if (element.getAttribute(name)?.startsWith("var(")) element.removeAttribute(name);
    }
  });
  return copy;
}

/** The picture on the ground it is seen on, with words above it: an SVG document. */
export function drawing(svg, words) {
  const { width, height } = svg.getBoundingClientRect();
  const copy = writtenOut(svg);
  const fill = lookOf(groundUnder(svg), "background-color");
  const size = { width: width + 24, height: height + 44 };
  copy.style.overflow = "visible";
  return tag(
    "svg",
    { xmlns: svg.namespaceURI, ...size, style: "font:13px system-ui,sans-serif" },
    rect(0, 0, size.width, size.height, { fill }) +
      text(12, 20, words, "", { fill: lookOf(svg, "color") }) +
      tag("g", { transform: "translate(12 32)" }, new XMLSerializer().serializeToString(copy)),
  );
}

/** The pixels of an SVG document at an address, two for each one of its own, as the address of a PNG. */
export async function pixels(address) {
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = 2 * image.width;
  canvas.height = 2 * image.height;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL();
}

/** A page with the figure as it stands: its title, where it stands, its style, and the script that drew it here. */
export function pageOf(title, mark, now, style) {
  const { text: program } = [...document.scripts].find((script) => script.text.includes(`"${mark}"`));
  const place = tag("main", { class: "labkit-figure", "data-figure": mark, "data-now": JSON.stringify(now) }, style);
  return (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">' +
    `<title>${escaped(title)}</title>${place}<script type="module">${program}</script>`
  );
}
