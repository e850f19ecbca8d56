// What stands around an explorer's picture: heading, player, sliders, numbers, help, table.

import { escaped, tag } from "./markup.js";
import { sliderMarkup } from "./sliders.js";

export const FORMATS = ["svg", "png", "html"];

const HELP = "Keys: ← and → step, Home and End jump, Space plays, t opens the table, ? this help.";
const ICONS = [
  ["first", "|◀", "first step"],
  ["back", "◀", "previous step"],
  ["play", "▶", "play"],
  ["next", "▶|", "next step"],
  ["last", "▶▶|", "last step"],
];
const MAIN = 3; // controls that are seen beside the player before "More" is opened
const TOLD = 6; // numbers of a row that are, and of the others those that are wrong
const SPEEDS = [0.25, 0.5, 1, 2, 4];
const NUMBERS = '<div data-part="numbers"></div>';
const LATER = '<button type="button" data-act="table" aria-expanded="false">Table</button>';
const ASK = '<button type="button" data-act="help" aria-expanded="false">Keys</button>';

const button = ([act, words, name]) =>
  tag("button", { type: "button", "data-act": act, title: name, "aria-label": name }, words);
const buttons = (all) => all.map(button).join("");

/** The player, and what of it is seldom wanted. */
function playerMarkup(view) {
  const speeds = SPEEDS.map((factor) => tag("option", { selected: factor === 1 && "" }, factor)).join("");
  const label = view.stepLabel ?? "step";
  const step = tag("input", { type: "range", min: 0, value: 0, "data-key": "step", "aria-label": label || "step" });
  const saving = FORMATS.map((format) => [format, `↓ ${format}`, `save as ${format}`]);
  const hint = view.hint ? tag("span", { class: "hint" }, escaped(view.hint)) : "";
  const bar = `<div class="bar step" data-part="player">${buttons(ICONS)}
<label>${escaped(label)} ${step} <output></output></label>
${buttons(Object.entries(view.buttons ?? {}))}${hint}</div>`;
  const more = `<div class="bar">${LATER}<label>speed <select>${speeds}</select></label>${buttons(saving)}${ASK}</div>`;
  return [bar, more];
}

/** The controls that matter most, and all others. */
function controls(view, values) {
  const main = view.main ?? view.sliders.slice(0, MAIN).map(({ key }) => key);
  const markup = (isMain) =>
    view.sliders
      .filter(({ key }) => main.includes(key) === isMain)
      .map((slider) => sliderMarkup(slider, values[slider.key]))
      .join("");
  return [markup(true), markup(false)];
}

/** All of an explorer but what follows from where it stands; `style` is its style sheet, `heading` its title's tag. */
export function frameMarkup(view, values, style, heading = "b") {
  const [player, seldom] = playerMarkup(view);
  const [main, others] = controls(view, values);
  const sliders = `<div class="bar" data-part="sliders">${main}</div>\n`;
  const [over, under] = view.isLed ? [`<div data-led="">${sliders}${player}</div>\n`, ""] : ["", player + sliders];
  return `${style}<div class="lk" role="group" aria-label="${escaped(view.title)}">
<header>${tag(heading, {}, escaped(view.title))}<span>${escaped(view.source)}</span></header>
${over}<div data-part="stage" tabindex="0" role="group" aria-label="picture; arrow keys step"></div>
${view.isNear ? NUMBERS : ""}
<p data-part="say" aria-live="polite"></p><div data-part="tip" aria-hidden="true" hidden></div>
${under}${view.isNear ? "" : NUMBERS}
<details data-part="more"><summary>More</summary><div data-part="further"></div>
<div class="bar">${others}</div>${seldom}</details>
<p data-part="help" hidden>${HELP} ${view.help ?? ""}</p><div data-part="table" hidden></div></div>`;
}

/** The picture; `own` begins the names of its arrows and stripes: those of a hidden figure are not painted. */
export function pictureMarkup({ svg, height, say }, width, own) {
  const inner = svg.replace(/([#"])lk/g, `$1${own}`);
  return (
    `<svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="xMinYMin" width="100%" height="${height}" ` +
    `role="img" aria-label="${escaped(say)}">${inner}</svg>`
  );
}

function numberMarkup([label, value, bad]) {
  const shown = tag("dd", { "data-number": label, class: bad ? "bad" : false }, escaped(value));
  return tag("div", {}, tag("dt", {}, escaped(label)) + shown);
}

/** A view's numbers in rows; [] begins one. */
function rowsOf(numbers) {
  const rows = [[]];
  for (const each of numbers) {
    if (each.length) rows.at(-1).push(each);
    else rows.push([]);
  }
  return rows;
}

const listOf = (numbers) => (numbers.length ? tag("dl", {}, numbers.map(numberMarkup).join("")) : "");

/** The numbers that are seen at once, and those under "More". */
export function numbersMarkup(numbers, first = TOLD) {
  const isTold = ([, , bad], k) => k < first || bad;
  const rows = rowsOf(numbers);
  const told = rows.map((row) => listOf(row.filter(isTold)));
  const further = rows.map((row) => listOf(row.filter((each, k) => !isTold(each, k))));
  return [told.join(""), further.join("")];
}

const headCell = (words) => tag("th", { scope: "col" }, escaped(words));
const cell = (words) => tag("td", {}, escaped(words));

/** A table; its first row names the columns. */
export function tableMarkup(rows) {
  const markup = rows.map((row, k) => tag("tr", {}, row.map(k ? cell : headCell).join("")));
  return tag("table", {}, markup.join(""));
}
