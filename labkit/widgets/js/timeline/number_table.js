// The table of numbers: of what is in view, of the whole, and of two runs their difference.

import { element, tableOf } from "./element.js";
import { isZoomed, ownWindow } from "./layout.js";
import { numbers } from "./numbers.js";
import { categoryTimes } from "./shares.js";
import { bytesText, changeText, countText, percentText, speedText, timeText } from "./words.js";

/** Name, label, what it is, how its value is written, and what is written after it. */
const NUMBERS = [
  ["window", "length", "time in view", timeText],
  ["blockedShare", "blocked", "share of the ranks' time spent in a call or in wait() while nothing moves", percentText],
  ["busyShare", "busy", "share of the ranks' time in which they compute or their calls move bytes", percentText],
  [
    "computeShare",
    "computing",
    "share of the ranks' time in which operators run; named regions do not count",
    percentText,
  ],
  ["bubble", "bubble", "share of the ranks' time without computation", percentText],
  ["communication", "communication", "time in which calls move bytes, summed over the ranks", timeText],
  [
    "exposed",
    "exposed communication",
    "bytes moving while the same rank does not compute",
    timeText,
    ({ exposedShare }) => `, ${percentText(exposedShare)} of communication`,
  ],
  [
    "sent",
    "sent",
    "bytes of sends and of remote calls' arguments that begin in view",
    bytesText,
    ({ messages }) => ` in ${countText(messages, "message")}`,
  ],
  [
    "payload",
    "collectives",
    "payload of the calls that begin in view, as nccl-tests counts it",
    bytesText,
    ({ calls }) => ` in ${countText(calls, "call")}`,
  ],
  ["busbw", "busbw", "mean bus bandwidth of the collectives that begin in view", speedText],
];

const CALLS = new Set(["sent", "payload", "busbw"]); // not told of runs that have none

/** The numbers of runs, in cells that are written anew in every frame. */
export class NumberTable {
  constructor(table) {
    this.table = table;
    this.key = null;
  }

  /** Numbers of a run in [t0, t1); beside another also its time in each category. */
  of(run, t0, t1, isBeside) {
    return { ...numbers(run, t0, t1), ...(isBeside && categoryTimes(run, t0, t1)) };
  }

  /** Make the rows, and the numbers of whole runs. */
  begin(runs) {
    const isBeside = runs.length > 1;
    this.wholes = runs.map((run) => this.of(run, 0, Math.max(run.span, 1), isBeside));
    const names = runs.map(({ name }) => name);
    const heads = isBeside
      ? [...names, "difference", ...names.map((name) => `whole: ${name}`)]
      : ["in view", "whole run"];
    const kinds = isBeside ? [...NUMBERS, ...categoriesOf(runs)] : NUMBERS;
    this.rows = kinds.map(([name, label, title, text, after = () => ""]) => {
      const cells = heads.map((_, i) => element("td", { class: i >= heads.length - runs.length && "labkit-whole" }));
      const head = element("th", { scope: "row", title }, label);
      return { name, text, after, cells, row: element("tr", { "data-number": name }, head, ...cells) };
    });
    const rows = this.rows.map(({ row }) => row);
    for (const { name, row } of this.rows) row.hidden = CALLS.has(name) && !this.wholes.some((whole) => whole[name]);
    this.table.replaceChildren(...tableOf(["", ...heads], rows));
    const columns = [...this.table.querySelectorAll("thead th")];
    for (const head of columns.slice(-runs.length)) head.classList.add("labkit-whole");
    if (!isBeside) [this.head] = columns;
  }

  /** Write the numbers of what is in view, and return those of each run; of the whole only beside those of a part. */
  write(state) {
    const { runs } = state;
    const isBeside = runs.length > 1;
    const key = runs.map((run) => run.start.length).join();
    if (this.key !== key) {
      this.key = key;
      this.begin(runs);
    }
    this.table.dataset.zoomed = String(isZoomed(state));
    if (!isBeside) this.head.textContent = isZoomed(state) ? "in view" : "whole run";
    const here = runs.map((run, number) => this.of(run, ...ownWindow(state, number), isBeside));
    for (const { name, text, after, cells } of this.rows) {
      const shown = [...here, ...this.wholes].map((found) => text(found[name]) + after(found));
      if (isBeside) shown.splice(2, 0, changeText(text, changeOf(here[0][name], here[1][name])));
      shown.forEach((words, i) => {
        cells[i].textContent = words;
      });
    }
    return here;
  }
}

/** By how much the second is more than the first; what sums are rounded by is no change. */
function changeOf(a, b) {
  const change = b - a;
  return Math.abs(change) <= 1e-9 * Math.max(Math.abs(a), Math.abs(b)) ? 0 : change;
}

/** A row for each category that any of the runs shows. */
function categoriesOf(runs) {
  return runs[0].categories.flatMap(([category], c) => {
    const isSeen = runs.some(({ owned }) => owned.has(c));
    return isSeen ? [[c, `time in ${category}`, "summed over the ranks", timeText]] : [];
  });
}
