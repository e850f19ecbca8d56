// What the theme leaves out for those who listen to a page or walk it by keys.
addEventListener("DOMContentLoaded", () => {
  for (const each of document.querySelectorAll('[role="heading"]:not([aria-level])')) each.setAttribute("aria-level", "2");
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "All pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
  document.querySelector(".view-this-page .visually-hidden")?.remove();
  for (const each of document.querySelectorAll("pre")) if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
});
