export { showPage } from "./timeline/page.js";
export { TimelineView } from "./timeline/view.js";
export { render } from "./timeline/widget.js";
