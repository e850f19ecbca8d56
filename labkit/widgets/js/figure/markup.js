// A picture as markup: elements, shapes, words, patterns.

import { ink } from "./colours.js";

/** Text that cannot become markup. */
export const escaped = (text) => String(text).replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);

const written = (value) => (typeof value === "number" ? Math.round(100 * value) / 100 : escaped(value));

/** An element as markup; undefined attributes are left out, numbers have two decimals. */
export function tag(name, attributes = {}, inner = "") {
  let given = "";
  for (const key in attributes) {
    const value = attributes[key];
    if (value !== undefined && value !== false) given += ` ${key}="${written(value)}"`;
  }
  return `<${name}${given}>${inner}</${name}>`;
}

/** A rectangle, with what a pointer over it is told. */
export const rect = (x, y, width, height, attributes = {}, title = "") =>
  tag("rect", { x, y, width: Math.max(width, 0), height, ...attributes, "data-tip": title || undefined });

export const text = (x, y, words, kind = "small", more = {}) =>
  tag("text", { x, y, class: kind, ...more }, escaped(words));

export const line = (x1, y1, x2, y2, kind = "rule", more = {}) => tag("line", { x1, y1, x2, y2, class: kind, ...more });

/** A group that steps back where `whether` holds. */
export const faint = (whether, inner, more) =>
  whether || more ? tag("g", { opacity: whether && 0.25, ...more }, inner) : inner;

/** Whether a bar of this width has room for words. */
export const holds = (width, words) => width > 6.5 * String(words).length + 4;

/** A bar with words in it where they have room. */
export function bar(x, y, width, height, fill, words = "", more = {}, title = "") {
  const box = rect(x, y, width, height, { fill, rx: 2, class: "edge", ...more }, title);
  if (!holds(width, words)) return box;
  return box + text(x + width / 2, y + height / 2 + 4, words, "small middle", ink(fill));
}

/** An arrow's head, for marker-end. */
export const ARROW =
  '<defs><marker id="lk-arrow" viewBox="0 0 6 6" refX="4.5" refY="3" markerWidth="3.6" markerHeight="3.6" ' +
  'orient="auto"><path d="M0 0 6 3 0 6z" fill="context-stroke"/></marker></defs>';

/** Words in lines from x = 0 on: [markup, height]. */
export function wrapped(words, y, width, kind = "small grey") {
  const lines = [""];
  for (const word of words.split(" ")) {
    if (5.8 * (lines.at(-1) + word).length > width) lines.push("");
    lines.push(`${lines.pop()}${word} `);
  }
  return [lines.map((each, k) => text(0, y + 14 * k, each, kind)).join(""), 14 * lines.length];
}

/** Dots over a weight's gradient. */
export const DOTS =
  '<defs><pattern id="lk-dots" width="5" height="5" patternUnits="userSpaceOnUse">' +
  '<path d="M0 0h2v2H0z" fill="#fff"/></pattern></defs>';

/** Stripes for time in which nothing runs: k leans and weighs differently. */
export function stripes(k) {
  const lean = [45, 0, 135][k];
  const style = `stroke:var(--${k === 1 ? "grey" : "edge"});stroke-width:${1 + k}`;
  return (
    `<defs><pattern id="lk-idle${k}" width="6" height="6" patternUnits="userSpaceOnUse" ` +
    `patternTransform="rotate(${lean})"><line y2="6" style="${style}"/></pattern></defs>`
  );
}
