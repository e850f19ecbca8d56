// Light or dark, and the colours that go with it.

import { BLOCKED } from "./kinds.js";
import { lateRanks } from "./last_ranks.js";
import { isDark } from "../page/dark.js";
import language from "../language.json" with { type: "json" };

const COLOURS = ["paper", "band", "ink", "quiet", "edge", "grid", "memory", "held", "selection"];
const DARK = 110; // of 255
const MEANINGS = { arrow: "send", path: "path", alarm: "wrong" };
/** Black or white, whichever stands out more. */
function inkOn(hex) {
  const [r, g, b] = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > DARK ? "#000000" : "#ffffff";
}

/** The colours of the style sheet in force, and those of the categories. */
function themeOf(root, dark, runs) {
  const style = getComputedStyle(root);
  const colours = runs[0].categories.map((category) => category[dark ? 2 : 1]);
  const own = COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]);
  const meant = Object.entries(MEANINGS).map(([name, of]) => [name, language.colours[of][dark ? 1 : 0]]);
  const named = Object.fromEntries([...own, ...meant]);
  if (runs.some((run) => lateRanks(run).length)) colours[BLOCKED] = named.alarm; // there waits are the point
  return { ...named, colours, onBar: colours.map(inkOn) };
}

/** Dress a timeline for the page around it, and return the colours it is painted with. */
export function dress(root, runs) {
  const dark = isDark(root);
  root.dataset.theme = dark ? "dark" : "light";
  const theme = themeOf(root, dark, runs);
  for (const name of ["arrow", "alarm", "path"]) root.style.setProperty(`--${name}`, theme[name]);
  return theme;
}
