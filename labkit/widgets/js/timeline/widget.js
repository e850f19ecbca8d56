// The view as anywidget calls it.

import { element } from "./element.js";
import { TimelineView } from "./view.js";

/** The packed runs of a model, each with its critical path where that is known. */
const runsOf = (model) => model.get("runs").map((run, i) => ({ ...run, path: model.get("paths")[i] }));

/** Open at the event the model points at, with what is said of it. */
function point(view, model) {
  const event = model.get("focus");
  const note = model.get("note");
  if (event >= 0 && event < view.state.runs[0].start.length) view.openAt(0, event);
  if (note) view.detail.prepend(element("b", {}, note), " ");
}

/** Draw a model into an element; returns what ends it. */
export function render({ model, el }) {
  const root = document.createElement("div");
  el.append(root);
  const code = { source: model.get("_esm"), style: model.get("_css") };
  const view = new TimelineView(root, { runs: runsOf(model), ...code });
  const update = () => {
    if (model.get("runs").length) view.setRuns(runsOf(model)); // none: it is being closed
  };
  const takePaths = () => view.takePaths(model.get("paths"));
  const pointAgain = () => point(view, model);
  const append = (message, [columns]) => view.append({ ...message, columns });
  model.on("change:runs", update);
  model.on("change:paths", takePaths);
  model.on("change:focus", pointAgain);
  model.on("msg:custom", append);
  pointAgain();
  return () => {
    model.off("msg:custom", append);
    model.off("change:runs", update);
    model.off("change:paths", takePaths);
    model.off("change:focus", pointAgain);
    view.end();
  };
}
