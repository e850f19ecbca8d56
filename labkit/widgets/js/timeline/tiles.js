// What is read first under the sentence: how long, how much of it ranks wait, how much communication nothing hides.

import { element } from "./element.js";
import { timeText } from "./words.js";

const share = (part) => (Number.isFinite(part) ? `${Math.round(100 * part)} %` : "–");

/** Label, what it is, and how it is read off a run's numbers (shares: of all ranks); undefined where nobody knows. */
const TILES = [
  ["length", "time in view", ({ window }) => timeText(window)],
  [
    "waiting (mean)",
    "mean over the ranks: share of the time in which a rank stands in a call or in wait() and nothing moves",
    ({ blockedShare, calls, messages }) => (calls || messages || blockedShare ? share(blockedShare) : undefined),
  ],
  [
    "exposed (mean)",
    "mean over the ranks: share of the time in which bytes move and a rank does not compute",
    ({ exposedOfTime, communication, bubble }) =>
      communication && Number.isFinite(bubble) ? share(exposedOfTime) : undefined,
  ],
];

/** Write the tiles of what is in view: of one run a value each, of two "797 µs → 225 µs". */
export function writeTiles(place, numbers, isZoomed) {
  const tiles = TILES.flatMap(([label, title, read]) => {
    const values = numbers.map(read);
    if (values.every((value) => value === undefined)) return [];
    const words = isZoomed ? `${label} in view` : label;
    const value = values.map((each) => each ?? "–").join(" → ");
    return [element("div", { title }, element("dd", {}, value), element("dt", {}, words))];
  });
  const key = tiles.map((tile) => tile.textContent).join("|");
  if (place.dataset.tiles === key) return;
  place.dataset.tiles = key;
  place.replaceChildren(...tiles);
}
