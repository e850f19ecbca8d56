// Elements of the page.

/** An element with attributes and children; attributes that are false are left out. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const UNIT = /([\d.]+ (?:%|[nµm]?s\b|[KMGT]?B\b))/;

/** Words in which a number stays on its unit's line. */
export const unbroken = (words) =>
  words.split(UNIT).map((part, k) => (k % 2 ? element("span", { style: "white-space:nowrap" }, part) : part));

/** A button that does `act`. */
export function button(label, title, act, attributes = {}) {
  const made = element("button", { type: "button", title, ...attributes }, label);
  made.addEventListener("click", act);
  return made;
}

/** A list to choose from; `choose` is told the words that were chosen. */
export function choice(label, options, choose) {
  const made = element("select", { "aria-label": label }, ...options.map((words) => element("option", {}, words)));
  made.addEventListener("change", () => choose(made.value));
  return made;
}

const headCell = (head) => (head ? element("th", { scope: "col" }, head) : element("td"));

/** The two parts of a table. */
export const tableOf = (heads, rows) => [
  element("thead", {}, element("tr", {}, ...heads.map(headCell))),
  element("tbody", {}, ...rows),
];
