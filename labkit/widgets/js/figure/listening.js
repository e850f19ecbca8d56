// Pointer, buttons, keys, sliders, paper and width of the page: what an explorer listens to.

import { listenToPointer } from "./pointing.js";

const KEYS = {
  ArrowRight: "next",
  ArrowLeft: "back",
  Home: "first",
  End: "last",
  " ": "play",
  t: "table",
  "?": "help",
  "]": "next",
  "[": "back",
};
const PAPER = 720; // pixels of a page's width: what is drawn wider is shrunk to it, words and all

/** Let an explorer hear its reader. */
export function listen(explorer) {
  listenToPointer(explorer);
  listenToButtons(explorer);
  listenToKeys(explorer);
  listenToSliders(explorer);
  listenToPage(explorer);
}

function listenToButtons(explorer) {
  explorer.root.onclick = ({ target }) => {
    explorer.run(target.closest("[data-act]")?.dataset.act);
    const chosen = target.closest("[data-choice]");
    if (chosen) choose(explorer, chosen);
  };
}

/** Take one of the words of a control. */
function choose(explorer, { dataset }) {
  const { root, values, view } = explorer;
  const { options } = view.sliders.find(({ key }) => key === dataset.choice);
  values[dataset.choice] = options[dataset.at];
  for (const each of root.querySelectorAll(`[data-choice="${dataset.choice}"]`)) {
    each.ariaPressed = String(each.dataset.at === dataset.at);
  }
  explorer.paint();
}

/** Whether a key is the page's: a shortcut, or Shift+Enter, which runs a cell. */
const isThePages = (event) =>
  event.ctrlKey || event.metaKey || event.altKey || (event.key === "Enter" && event.shiftKey);

/** Whether what has the focus needs the key itself. */
const needs = (element, key) => element.matches("input, select") || (element.matches("button") && key === " ");

function listenToKeys(explorer) {
  const keys = { ...KEYS, ...explorer.view.keys };
  explorer.root.onkeydown = (event) => {
    if (isThePages(event)) return;
    // Or the notebook takes an "a" for "insert a cell".
    if (event.key !== "Tab" && event.key !== "Escape") event.stopPropagation();
    const act = keys[event.key];
    if (!act || needs(event.target, event.key)) return;
    event.preventDefault();
    explorer.run(act);
  };
}

function listenToSliders(explorer) {
  const { root, stepInput, values, view } = explorer;
  root.oninput = ({ target }) => {
    const to = Number(target.value);
    if (target === stepInput) {
      explorer.stop();
      explorer.go(to);
    }
    const slider = view.sliders.find(({ key }) => key === target.dataset.key);
    if (!slider) return;
    values[slider.key] = slider.options ? slider.options[to] : to;
    explorer.showValues();
    explorer.paint();
  };
}

/** Paint for paper before the page is printed, and anew when its width changes. */
function listenToPage(explorer) {
  const { root, stage } = explorer;
  globalThis.addEventListener?.("beforeprint", () => {
    if (!root.closest("[data-fitted]")) explorer.paint(PAPER); // a deck has pages of its own
  });
  globalThis.addEventListener?.("afterprint", () => explorer.paint());
  if (!globalThis.ResizeObserver) return;
  let seen = 0;
  const observer = new ResizeObserver(() => {
    if (!stage.clientWidth || Math.abs(stage.clientWidth - seen) <= 1) return;
    seen = stage.clientWidth;
    explorer.paint();
  });
  observer.observe(stage);
}
