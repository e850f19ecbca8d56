// How a page brings its figures to life.

import { Explorer } from "./explorer.js";
import { listen } from "./listening.js";

/** Start a view on every figure of this page with this mark that is not alive yet. */
export function start(mark, view, data) {
  for (const root of document.querySelectorAll(`.labkit-figure[data-figure="${mark}"]:not([data-live])`)) {
    root.dataset.live = "";
    listen(new Explorer(root, view(data)));
  }
}
