// What is shown, as files: PNG and SVG of the part in view, a page of its own, a Chrome trace of the run.

import { toChrome } from "./chrome_trace.js";
import { element } from "./element.js";
import { toPage } from "./page_text.js";
import { toSvg } from "./svg.js";

const KEPT_MS = 10000; // how long a file stays at its address

/** Let the reader's browser save a file. */
function download(view, blob, ending) {
  const link = element("a", { download: `timeline.${ending}`, href: URL.createObjectURL(blob) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT_MS);
  view.say(`Saved timeline.${ending}.`);
}

/** Save in one of the formats of the list. */
export function save(view, format) {
  const file = (text, type, ending) => download(view, new Blob([text], { type }), ending);
  if (format === "PNG") view.canvas.toBlob((blob) => download(view, blob, "png"));
  else if (format === "SVG") file(toSvg(view.state), "image/svg+xml", "svg");
  else if (format === "HTML") file(toPage(view.packed, view.code), "text/html", "html");
  else file(toChrome(view.state), "application/json", "json");
}
