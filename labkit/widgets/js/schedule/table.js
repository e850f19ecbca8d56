// The numbers of schedules beside each other: each heading once, digits under each other.

import { escaped, tag } from "../figure/markup.js";

const NARROW = 560; // pixels of a picture under which each schedule is a column
const STYLE = `<style>
.lk .compared { margin: 10px 0; font-size: 14px }
.lk .compared :is(th, td) {
  border: 0; padding: 3px 0 3px 22px; text-align: right; vertical-align: bottom; font-variant-numeric: tabular-nums
}
.lk .compared .heading { color: var(--grey); font-size: 12px; font-weight: 400 }
.lk .compared .heading[scope="col"] { max-width: 7.5em }
.lk .compared tr + tr > * { border-top: 1px solid var(--soft) }
.lk .compared tr > :first-child { padding-left: 0; text-align: left }
.lk .compared td:not(.bad) { font-weight: 600; white-space: nowrap }
</style>`;

/** A column of nothing else says nothing. */
const SAME = new Set(["0.0 %", "100.0 %", ""]);

const headOf = (words, scope, kind) => tag("th", { scope, class: kind }, escaped(words).replace(/-/g, "\u2011"));
const valueOf = ([label, value, bad]) =>
  tag("td", { "data-number": label, class: bad ? "bad" : false }, escaped(value));
const rowOf = (head, cells) => tag("tr", {}, head + cells.join(""));

/**
 * The table of schedules, a row each, and a column where that has no room.
 *
 * @param {Array<[name: string, numbers: Array<[heading: string, value: *, bad?: *]>]>} schedules
 */
export function comparedMarkup(schedules, width) {
  const told = schedules.flatMap(([, numbers]) => numbers);
  const isTold = (heading) => told.some(([each, value]) => each === heading && !SAME.has(value));
  const headings = [...new Set(told.map(([heading]) => heading))].filter((each) => isTold(each) || each === "bubble");
  const names = schedules.map(([name]) => name);
  const cell = ([name, numbers], heading) => {
    const [, value, bad] = numbers.find(([each]) => each === heading) ?? [heading, ""];
    return valueOf([`${name}: ${heading}`, value, bad]);
  };
  const corner = "<td></td>";
  const rows =
    width < NARROW
      ? [
          rowOf(
            corner,
            names.map((name) => headOf(name, "col")),
          ),
          ...headings.map((heading) => {
            return rowOf(
              headOf(heading, "row", "heading"),
              schedules.map((each) => cell(each, heading)),
            );
          }),
        ]
      : [
          rowOf(
            corner,
            headings.map((heading) => headOf(heading, "col", "heading")),
          ),
          ...schedules.map((each) =>
            rowOf(
              headOf(each[0], "row"),
              headings.map((heading) => cell(each, heading)),
            ),
          ),
        ];
  return STYLE + tag("table", { class: "compared" }, rows.join(""));
}
