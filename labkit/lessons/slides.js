// Figures take the room their slide has, in type that can be read from the last row; keys stay where a speaker looks.

const LARGEST = 1.5;
/** How far down a slide's prose may reach, in its pixels. */
const LOWEST = 690;

/** Wait until what was resized has drawn itself anew. */
const drawn = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));

/** Lay a live figure out so narrow that, enlarged, it fills the picture's width; or its height, whichever is less. */
async function fit(live) {
  const { clientWidth: width, clientHeight: height } = live.parentElement;
  if (!width) {
    // Not laid out yet; its slide may be on its way in.
    await drawn();
    delete live.dataset.fitted;
    fitPresent();
    return;
  }
  let scale = LARGEST;
  for (let turn = 0; turn < 3; turn++) {
    live.style.width = `${width / scale}px`;
    await drawn();
    const next = Math.min(scale, height / live.scrollHeight);
    if (next === scale) break;
    scale = next;
  }
  live.style.width = `${width / scale}px`;
  live.style.transform = `scale(${scale})`;
  live.style.marginTop = `${Math.max(0, height - live.scrollHeight * scale) / 2}px`;
  live.dataset.fitted = scale.toFixed(2);
}

/** Fit every figure of the deck; labkit/lessons/reveal.py calls it before it prints. */
globalThis.fitAll = () => {
  document
    .querySelectorAll(".slides section:not(.figure, .stack)")
    .forEach((each) => each.matches(".prose, .exercise") && grow(each));
  return Promise.all([...document.querySelectorAll(".live")].map(fit));
};

/** Fit what has come to life on this slide; once, for a slide keeps its size however large the window is. */
function fitPresent() {
  for (const live of document.querySelectorAll("section.present .live:not([data-fitted]):has(svg, canvas)")) {
    live.dataset.fitted = "";
    fit(live);
  }
}

/** Let prose grow until it fills its slide: what is read from the last row needs no empty half. */
function grow(section) {
  section.dataset.grown = "";
  const parts = [...section.children].filter((each) => !each.matches("aside"));
  const codes = [...section.querySelectorAll("pre, table")];
  const down = () => Math.max(...parts.map((each) => each.offsetTop + each.offsetHeight));
  const cut = () => codes.some((each) => each.scrollWidth > each.clientWidth + 1 || each.offsetWidth > 1216);
  for (let size = section.matches(".exercise") ? 64 : 84; size >= 30; size -= 2) {
    section.style.fontSize = `${size}px`;
    if (down() <= LOWEST && !cut()) break;
  }
  // Where code is as wide as the slide, its lines take the height that is left; then what is below the title does.
  for (let height = 2.1; codes.length && height >= 1.35; height -= 0.15) {
    codes.forEach((each) => each.style.setProperty("--line-height", height.toFixed(2)));
    if (down() <= LOWEST) break;
  }
  const below = parts[1] ?? parts[0];
  if (down() < LOWEST - 60) {
    below.style.marginTop = `${parseFloat(getComputedStyle(below).marginTop) + (LOWEST - down()) / 2}px`;
  }
}

const growPresent = () => document.querySelectorAll("section.present:not(.figure, [data-grown])").forEach(grow);

/** A countdown begins with a click, shows minutes and seconds, and says when it is over; another click begins anew. */
for (const button of document.querySelectorAll(".countdown button")) {
  let timer = 0;
  button.addEventListener("click", () => {
    clearInterval(timer);
    const end = Date.now() + 60000 * Number(button.dataset.minutes);
    const show = () => {
      const left = Math.max(0, Math.ceil((end - Date.now()) / 1000));
      button.textContent = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
      button.classList.toggle("over", left === 0);
      if (!left) clearInterval(timer);
    };
    timer = setInterval(show, 250);
    show();
    button.blur(); // keys are the deck's
  });
}

if (!printing) {
  Reveal.on("ready", growPresent);
  Reveal.on("slidechanged", growPresent);
  Reveal.on("ready", fitPresent);
  Reveal.on("slidechanged", () => {
    // Keys that a figure took are the deck's again.
    document.activeElement?.blur();
    fitPresent();
  });
}

// A figure that comes to life after its slide was reached.
new MutationObserver(fitPresent).observe(document.querySelector(".slides"), { childList: true, subtree: true });

// A clicker goes on, whatever has the focus.
document.addEventListener(
  "keydown",
  (event) => {
    if (!event.target.closest?.(".live") || !["PageDown", "PageUp"].includes(event.key)) return;
    event.stopPropagation();
    event.preventDefault();
    if (event.key === "PageDown") Reveal.next();
    else Reveal.prev();
  },
  true,
);
