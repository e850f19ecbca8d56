// Figures take the room their slide has, in type that can be read from the last row; keys stay where a speaker looks.

const LEAST = 20; // pixels of any letter on a slide of 1280 x 720
const SMALL = 11; // pixels of the smallest letters in a figure
const PLAIN = 13; // of those in a figure told in frames, which is drawn as large as it is wide
const LARGER = 2.4; // times as large as on a page are a timeline's letters where its rows leave them room
const STORY = 27; // pixels of the letters in a story's boxes, which have room for words that are larger than on a page
/** Times as high as a timeline's rows are at first: where they do not fit, and where there is room left. */
const HIGHER = [1.25, 1.5, 1.75, 2];
const LOWER = [0.75, 0.56, 0.48, 0.4, 0.34, 0.29, 0.25, 0.2, 0.16, 0.12];
/** How far down a slide's prose may reach, in its pixels, and how far a figure. */
const [LOWEST, BOTTOM] = [690, 706];

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

/** Make a timeline's rows as high as there is room, for what is seen from the last row. */
async function raise(live, timeline, room, least) {
  let before = least;
  for (const tall of HIGHER) {
    timeline.state.tall = tall;
    timeline.resize();
    await drawn();
    if (live.scrollHeight > room) break;
    before = tall;
  }
  timeline.state.tall = before;
  timeline.resize();
  await drawn();
}

/** Whether a slide speaks of memory; of all others it takes the room. */
const isOfMemory = (live) => /memory|hold|GB/i.test(live.closest("section").querySelector("h3")?.textContent);

/** What a timeline may give up for its letters, a little more each time: height, ranks like others, memory, lanes. */
function waysOf(live, { runs, cluster, memory: had }) {
  const memory = had && isOfMemory(live);
  const arrows = runs.length < 2; // of two runs the ends are held against each other, and messages would cross them
  const ways = [99, 4, 3].flatMap((few) =>
    [1, LOWER[0]].map((tall) => ({ few, tall, arrows, cluster, memory: memory && few > 4, folded: few > 4 })),
  );
  return runs.length < 2 ? ways : [...ways, ...ways.slice(-2).map((way) => ({ ...way, cluster: true }))];
}

/** Give a timeline the largest letters and the highest rows that it has room for; return its scale. */
async function enlarge(live, timeline, { width, height }, scale) {
  const ways = waysOf(live, timeline.state);
  for (const larger of [LARGER, scale]) {
    live.style.width = `${width / larger}px`;
    for (const way of ways) {
      Object.assign(timeline.state, way);
      timeline.resize();
      await drawn();
      if (live.scrollHeight > height / larger) continue;
      await raise(live, timeline, height / larger, way.tall);
      return larger;
    }
  }
  Object.assign(timeline.state, ways[0]);
  await lower(live, timeline, height / scale);
  return scale;
}

/** By how much a picture must be smaller for all to fit: 1 if it does. */
function keptOf(live, room) {
  const over = Math.max(live.scrollHeight - room, 0);
  return Math.max(1 - over / live.querySelector("svg[role=img]").clientHeight, 0.3);
}

/** Lay an explorer out wider, with letters larger by as much, and its picture lower until it fits; return its scale. */
async function shrink(live, isStory, { width, height }, scale) {
  if (!live.querySelector("svg[role=img]") || live.scrollHeight <= height / scale) return scale;
  live.dataset.tight = ""; // what a room can do without goes
  await drawn();
  let [to, letters] = [scale, 1];
  if (!isStory) {
    letters = 1 / Math.max(keptOf(live, height / scale), 0.7);
    to = scale / letters;
    live.style.setProperty("--letters", letters);
    live.style.width = `${width / to}px`;
    await drawn();
  }
  const kept = keptOf(live, height / to);
  if (kept < 1) {
    live.style.setProperty("--most", `${live.querySelector("svg[role=img]").clientHeight * kept}px`);
    live.style.setProperty("--in-picture", isStory ? 1 : (letters / kept) * 1.02); // what is rounded stays above
    await drawn();
  }
  return to;
}

/** Let a slide be titled by what its explorer shows, as that is computed now; one with a question keeps its topic. */
function claim(live) {
  const section = live.closest("section");
  const [says, heading] = [live.querySelector(".lk header > :first-child"), section.querySelector("h3")];
  if (!says || !heading || section.querySelector(".asked") || "claimed" in section.dataset) return;
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
  let scale = LEAST / (isStory ? PLAIN : SMALL);
  live.style.width = `${width / scale}px`;
  await drawn();
  if (timeline) scale = await enlarge(live, timeline, { width, height }, scale);
  else scale = await shrink(live, isStory, { width, height }, scale);
  if (live.scrollHeight > height / scale) {
    scale = height / live.scrollHeight; // it cannot be had lower
    live.style.width = `${width / scale}px`;
    await drawn();
    scale = Math.min(scale, height / live.scrollHeight);
  }
  live.style.transform = `scale(${scale})`;
  timeline?.resize(); // as many pixels as it now covers
  if (timeline) await drawn();
  if (live.scrollHeight * scale > height + 1) {
    scale = height / live.scrollHeight; // sharper, it has drawn a mark more, and its legend is a line higher
    live.style.transform = `scale(${scale})`;
  }
  live.style.marginTop = `${Math.max(0, height - live.scrollHeight * scale) / 2}px`;
  if (isStory) {
    const seen = live.querySelector("svg[role=img] text").getScreenCTM().a / (printing ? 1 : Reveal.getScale());
    live.style.setProperty("--story-letters", Math.max(1, STORY / (PLAIN * seen)).toFixed(3));
  }
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
  const codes = [...section.querySelectorAll("pre, table")].filter((each) => !each.closest("aside"));
  const down = () => Math.max(...parts.map((each) => each.offsetTop + each.offsetHeight));
  // A long word goes past its line's end; in print it is the code itself that is cut, and not its frame.
  const wide = [...codes, ...section.querySelectorAll("pre code, h1, h2, h3, p, li")];
  const cut = () => wide.some((each) => each.scrollWidth > each.clientWidth + 1 || each.offsetWidth > 1216);
  const isLine = parts.length === 2 && !codes.length && parts[1].matches("p"); // one sentence alone may be larger
  for (let size = isLine ? 60 : 52; size >= 30; size -= 2) {
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

/** No title breaks inside a word such as all-reduce. */
for (const title of document.querySelectorAll(".slides :is(h1, h2, h3)")) {
  for (const words of [...title.childNodes].filter((each) => each.nodeType === 3)) {
    const parts = words.textContent.split(/(\S+-\S+)/).map((part, k) => {
      if (k % 2 === 0) return part;
      const whole = document.createElement("span");
      whole.className = "whole";
      whole.textContent = part;
      return whole;
    });
    words.replaceWith(...parts);
  }
}

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
