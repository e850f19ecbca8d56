// Figures take the room their slide has, in type that can be read from the last row; keys stay where a speaker looks.

const LEAST = 20; // pixels of any letter on a slide of 1280 x 720 as it is laid out at first
const LABEL = 24; // of those of a timeline that is shown live
const SMALL = 11; // pixels of the smallest letters in a figure
const PLAIN = 13; // of those in a figure told in frames, which is drawn as large as it is wide
/** Times as high as a live timeline's rows are at first, where they do not fit. */
const LOWER = [0.75, 0.56, 0.48, 0.4, 0.34, 0.29, 0.25, 0.2, 0.16, 0.12];
const BOTTOM = 706; // how far down a slide's figure may reach, in its pixels

/** Wait until what was resized has drawn itself anew. */
const drawn = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));

/** Make a timeline's rows lower until it fits; its letters stay as large as they are. */
async function lower(live, timeline, room) {
  for (const tall of LOWER) {
    if (live.scrollHeight <= room) return;
    if (tall < 0.5) live.dataset.tight = ""; // what a room can do without goes first
    timeline.state.tall = tall;
    timeline.resize();
    await drawn();
  }
}

/** Whether a slide speaks of memory; of all others it takes the room. */
const isOfMemory = (live) => /memory|hold|GB/i.test(live.closest("section").querySelector(".kicker, h3")?.textContent);

/** The ranks that a slide has room for: of one run, and of each of two. */
const SHOWN = [4, 2];

/** Draw a timeline as its slide has room for it; a click shows it live, and another one the drawing again. */
async function sketch(live, timeline, { width, height }) {
  const { state } = timeline;
  Object.assign(state, { folded: true, cluster: false, streams: false });
  timeline.resize();
  await drawn();
  live.querySelector(".hall-timeline")?.remove();
  live.style.width = `${width}px`;
  const size = { width, height: height - 34, most: SHOWN[state.runs.length - 1] }; // below it stands the slide's number
  const legend = live.querySelector(".labkit-legend").textContent;
  const hasMemory = state.memory && isOfMemory(live);
  live.insertAdjacentHTML("beforeend", globalThis.slideDrawing(state, legend, size, hasMemory));
  live.querySelector(".hall-timeline").addEventListener("click", () => open(live, timeline, { width, height }));
  live.dataset.fitted = "1";
}

/** Show a timeline live in place of its drawing, until Escape. */
async function open(live, timeline, { width, height }) {
  const scale = LABEL / SMALL;
  live.dataset.opened = "";
  live.style.width = `${width / scale}px`;
  live.style.transform = `scale(${scale})`;
  timeline.state.tall = 1;
  timeline.resize();
  await drawn();
  await lower(live, timeline, height / scale);
  timeline.canvas.focus();
}

/** Show the drawing again. */
function close(live) {
  delete live.dataset.opened;
  delete live.dataset.tight;
  live.style.transform = "";
  live.style.width = "";
}

/** By how much a picture must be smaller for all to fit: 1 if it does. */
function keptOf(live, room) {
  const over = Math.max(live.scrollHeight - room, 0);
  return Math.max(1 - over / live.querySelector("svg[role=img]").clientHeight, 0.3);
}

/** Lay an explorer out wider, with letters larger by as much, and its picture lower until it fits; return its scale. */
async function shrink(live, { width, height }, scale) {
  if (!live.querySelector("svg[role=img]") || live.scrollHeight <= height / scale) return scale;
  live.dataset.tight = ""; // what a room can do without goes
  await drawn();
  const letters = 1 / Math.max(keptOf(live, height / scale), 0.7);
  const to = scale / letters;
  live.style.setProperty("--letters", letters);
  live.style.width = `${width / to}px`;
  await drawn();
  const kept = keptOf(live, height / to);
  if (kept < 1) {
    live.style.setProperty("--most", `${live.querySelector("svg[role=img]").clientHeight * kept}px`);
    live.style.setProperty("--in-picture", (letters / kept) * 1.02); // what is rounded stays above
    await drawn();
  }
  return to;
}

/** Let a slide be titled by what its explorer shows, as that is computed now; one that asks the room keeps its own. */
function claim(live) {
  const section = live.closest("section");
  const [says, heading] = [live.querySelector(".lk header > :first-child"), section.querySelector(".kicker, h3")];
  if (!says || !heading || "claimed" in section.dataset || section.querySelector(".asks")) return;
  section.dataset.claimed = "";
  const follow = () => (heading.textContent = says.textContent);
  follow();
  new MutationObserver(follow).observe(says, { childList: true, characterData: true, subtree: true });
}

/** Lay a live figure out so narrow that, enlarged, its smallest letters can be read from the last row. */
async function fit(live) {
  claim(live);
  const picture = live.parentElement;
  const timeline = live.querySelector(".labkit-timeline")?.labkit;
  const isStory = !timeline && !live.querySelector("svg[role=img] text:not(.plain)");
  const [width, height] = [picture.clientWidth, BOTTOM - picture.offsetTop];
  picture.style.height = `${height}px`;
  if (!width) {
    // Not laid out yet; its slide may be on its way in.
    await drawn();
    delete live.dataset.fitted;
    fitPresent();
    return;
  }
  if (timeline) {
    await sketch(live, timeline, { width, height });
    return;
  }
  let scale = LEAST / (isStory ? PLAIN : SMALL);
  live.style.width = `${width / scale}px`;
  await drawn();
  if (isStory) live.dataset.tight = "";
  else scale = await shrink(live, { width, height }, scale);
  if (!isStory && live.scrollHeight > height / scale) {
    scale = height / live.scrollHeight; // it cannot be had lower
    live.style.width = `${width / scale}px`;
    await drawn();
    scale = Math.min(scale, height / live.scrollHeight);
  }
  live.style.transform = `scale(${scale})`;
  if (isStory) globalThis.fillStory(live, height / scale);
  else live.style.marginTop = `${Math.max(0, height - live.scrollHeight * scale) / 2}px`;
  live.dataset.fitted = scale.toFixed(2);
}

const fitting = new WeakMap(); // what a figure's last fitting is done with, by figure

/** Fit a figure after whatever is fitting it: two at once would each undo what the other found. */
function fitAlone(live) {
  const done = (fitting.get(live) ?? Promise.resolve()).then(() => fit(live));
  fitting.set(live, done);
  return done;
}

/** Fit every figure of the deck; labkit/lessons/reveal.py calls it before it prints. */
globalThis.fitAll = () => {
  document
    .querySelectorAll(".slides section:not(.figure, .stack)")
    .forEach((each) => each.matches(".prose, .exercise") && grow(each));
  const numbers = [...document.querySelectorAll(".slide-number-pdf")];
  numbers.forEach((each, k) => (each.textContent = `${k + 1} / ${numbers.length}`)); // as on the wall
  return Promise.all([...document.querySelectorAll(".live")].map(fitAlone));
};

/** Fit what has come to life on this slide; once, for a slide keeps its size however large the window is. */
function fitPresent() {
  for (const live of document.querySelectorAll("section.present .live:not([data-fitted]):has(svg, canvas)")) {
    live.dataset.fitted = "";
    fitAlone(live);
  }
}

const growPresent = () =>
  document.querySelectorAll("section.present:is(.prose, .exercise):not([data-grown])").forEach(grow);

if (!printing) {
  const begin = () => [growPresent(), fitPresent()];
  if (Reveal.isReady()) begin(); // it may be before this script is read
  else Reveal.on("ready", begin);
  Reveal.on("slidechanged", growPresent);
  Reveal.on("slidechanged", () => {
    // Keys that a figure took are the deck's again.
    document.activeElement?.blur();
    fitPresent();
  });
}

// A figure that comes to life after its slide was reached.
new MutationObserver(fitPresent).observe(document.querySelector(".slides"), { childList: true, subtree: true });

// Escape leaves a live timeline, and not the slide.
document.addEventListener(
  "keydown",
  (event) => {
    const live = event.target.closest?.(".live[data-opened]");
    if (!live || event.key !== "Escape") return;
    event.stopPropagation();
    close(live);
  },
  true,
);

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
