// Figures take the room their slide has, in type that can be read from the last row; keys stay where a speaker looks.

const LEAST = 20; // pixels of any letter on a slide of 1280 x 720 as it is laid out at first
const LABEL = 24; // of any letter of a timeline: a thirtieth of the slide's height
const SMALL = 11; // pixels of the smallest letters in a figure
const PLAIN = 13; // of those in a figure told in frames, which is drawn as large as it is wide
/** Times as large as on a page are a timeline's letters, where its rows leave them room. */
const LARGER = [2.62, 2.3];
const UNSEEN = 0.002; // of the rows' time, under which a legend's entry is left out
const STORY = 27; // pixels of the letters in a story's boxes, which have room for words that are larger than on a page
/** Times as high as a timeline's rows are at first: where they do not fit, and where there is room left. */
const HIGHER = [1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4];
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

/** Make a timeline's rows as high as there is room, for what is seen from the last row. */
async function raise(live, timeline, room, least) {
  let before = least;
  const most = timeline.state.runs.some(computes) ? 4 : 2; // brackets are no clearer for being high
  for (const tall of HIGHER.filter((each) => each <= most)) {
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
const isOfMemory = (live) => /memory|hold|GB/i.test(live.closest("section").querySelector(".kicker, h3")?.textContent);

/** Whether a run's ranks compute for long enough to be seen; else its brackets say what they do. */
function computes({ rows, span, segmentStart, segmentEnd }) {
  const timeIn = ({ from, to }) => {
    let sum = 0;
    for (let s = from; s < to; s++) sum += segmentEnd[s] - segmentStart[s];
    return sum;
  };
  return rows.some((row) => row.lane === 0 && row.to > row.from && timeIn(row) > 0.02 * span);
}

/** What a timeline may give up for its letters, a little more each time: height, ranks like others, memory, lanes. */
function waysOf(live, { runs, cluster, memory: had }) {
  const memory = had && isOfMemory(live);
  const all = runs.some(computes) ? 98 : 99; // with 99 go the brackets around what is computed
  const isAlone = runs.length < 2; // of two the ends are held against each other, and messages would cross them
  return (isAlone ? [all, 4, 3] : [all, 2]).flatMap((few) =>
    [1, ...LOWER.slice(0, isAlone ? 1 : 3)].map((tall) => ({
      few,
      tall,
      cluster,
      arrows: isAlone,
      memory: memory && few > 4,
      folded: few > 4,
    })),
  );
}

/** Let a slide's legend name a barrier as one, and leave out what is too short to be seen. */
function tellMarks(live, { runs, layout }) {
  const times = new Map();
  let whole = 0;
  for (const { run: at, row } of layout.rows) {
    const run = runs[at];
    whole += run.span;
    for (let s = row.from; s < row.to; s++) {
      const category = String(run.segmentCategory[s]);
      const [before, names] = times.get(category) ?? [0, new Set()];
      names.add(run.labels[run.label[run.owner[s]]][0]);
      times.set(category, [before + run.segmentEnd[s] - run.segmentStart[s], names]);
    }
  }
  for (const entry of live.querySelectorAll(".labkit-legend [data-mark]")) {
    const [time, names] = times.get(entry.dataset.mark) ?? [];
    if (time === undefined) continue;
    entry.style.display = time < UNSEEN * whole ? "none" : "";
    if (names.size === 1 && names.has("barrier")) entry.lastChild.textContent = "barrier";
  }
}

/** Give a timeline the largest letters and the highest rows that it has room for; return its scale. */
async function enlarge(live, timeline, { width, height }, scale) {
  const ways = waysOf(live, timeline.state);
  const isWide = !timeline.state.runs.some(computes); // narrow, many of its brackets would be too short to be drawn
  for (const larger of isWide ? [scale] : [...LARGER, scale]) {
    live.style.width = `${width / larger}px`;
    for (const way of ways) {
      Object.assign(timeline.state, way);
      timeline.resize();
      tellMarks(live, timeline.state);
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
  let scale = (timeline ? LABEL : LEAST) / (isStory ? PLAIN : SMALL);
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

const growPresent = () => document.querySelectorAll("section.present:not(.figure, [data-grown])").forEach(grow);

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
