// What the theme and the views leave out for those who listen to a page or walk it by keys.
const reachable = () => {
  for (const each of document.querySelectorAll("pre, .table-wrapper, .math-wrapper"))
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
};
addEventListener("DOMContentLoaded", () => {
  for (const each of document.querySelectorAll('[role="heading"]:not([aria-level])'))
    each.setAttribute("aria-level", "2");
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "All pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
  document.querySelector(".view-this-page .visually-hidden")?.remove();
  for (const each of document.querySelectorAll('input[data-key="step"]')) each.setAttribute("aria-label", "step");
  for (const each of document.querySelectorAll("th"))
    if (!each.textContent.trim()) each.replaceWith(document.createElement("td")); // a corner that heads nothing
  const results = document.querySelector("#search-results");
  if (results && !document.querySelector("h1")) {
    const heading = document.createElement("h1");
    heading.textContent = "Search";
    results.before(heading);
  }
  reachable();
});
addEventListener("load", reachable);
addEventListener("resize", reachable);
// A timeline's page says how high it is, so its frame neither cuts it nor leaves a gap, and is told whether this page
// is dark. One that was there before us has said its height already, and is asked.
const scheme = () => {
  const { theme } = document.body.dataset;
  if (theme === "light" || theme === "dark") return theme;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
};
const dress = (frame) => {
  frame.style.colorScheme = scheme();
  frame.contentWindow.postMessage({ labkitScheme: scheme() }, "*");
};
const framed = () => [...document.querySelectorAll("iframe.labkit-page")];
addEventListener("message", ({ data, source }) => {
  const frame = data?.labkitHeight && framed().find((each) => each.contentWindow === source);
  if (!frame) return;
  frame.style.height = `${data.labkitHeight}px`;
  if (frame.style.colorScheme !== scheme()) dress(frame);
});
const dressAll = () => framed().forEach(dress);
new MutationObserver(dressAll).observe(document.body, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", dressAll);
for (const frame of framed()) frame.contentWindow.postMessage("labkitHeight", "*");
