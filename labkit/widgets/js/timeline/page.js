// How a page of its own brings its timeline to life.

import { fromBase64 } from "./bytes.js";
import { withoutCall } from "./page_text.js";
import { TimelineView } from "./view.js";

/** Show what the page carries (labkit/widgets/timeline_page.py): runs whose bytes are base64. */
export function showPage(root, runs) {
  const read = (part) => part && { ...part, columns: fromBase64(part.columns) };
  const program = document.querySelector("script[type=module]").textContent;
  const view = new TimelineView(root, {
    runs: runs.map((run) => ({ ...read(run), path: read(run.path) })),
    source: withoutCall(program),
    style: document.querySelector("style").textContent,
  });
  return view;
}
