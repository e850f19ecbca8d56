// The visual language as properties of a figure: each meaning's colour, and the ink that is read on it.

import { isDark } from "../page/dark.js";
import language from "../language.json" with { type: "json" };
import { inkOn } from "./colours.js";

/** Give a figure the colours for the page's ground. */
function dress(root) {
  const dark = isDark(root);
  for (const [name, both] of Object.entries(language.colours)) {
    const colour = both[dark ? 1 : 0];
    root.style.setProperty(`--lk-${name}`, colour);
    root.style.setProperty(`--lk-on-${name}`, inkOn(colour));
  }
}

/** Give a figure its colours now and whenever the page's ground changes. */
export function followTheme(root) {
  dress(root);
  if (!globalThis.MutationObserver) return;
  const again = () => dress(root);
  new MutationObserver(again).observe(document.body, { attributeFilter: ["data-jp-theme-light", "class"] });
  globalThis.matchMedia?.("(prefers-color-scheme: dark)").addEventListener("change", again);
}
