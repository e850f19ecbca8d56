// A figure told in frames, as a slide shows it: without the paper around it, its letters as large as its boxes hold.

const SAY = [26, 24, 22]; // pixels of its sentence before the slide enlarges them, the last of one that is too long
const LETTERS = [46, 44, 42, 40, 38, 36, 34, 32, 30, 28]; // pixels on the slide, of words that are 13 in the story
const LEAST_WORDS = 27;
const DRAWN = 13;
const MOST_ZOOM = 2.4;
const BETWEEN = 10; // pixels from one word to the next, at least
const EDGE = 8; // pixels around what is drawn

const isIn = (one, other, slack = 0) =>
  one.left >= other.left - slack &&
  one.right <= other.right + slack &&
  one.top >= other.top - slack &&
  one.bottom <= other.bottom + slack;

/** Whether two boxes lie on each other. */
const meet = (one, other) =>
  Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1 &&
  Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1;

/** A text's letters, without the room above and below them. */
function inkOf(text) {
  const { left, right, top, bottom } = text.getBoundingClientRect();
  const high = bottom - top;
  return { left: left - BETWEEN / 2, right: right + BETWEEN / 2, top: top + 0.12 * high, bottom: bottom - 0.12 * high };
}

/** What words meet: each pair of words, and of words and a box that they are not in. */
function meetings(svg) {
  const texts = [...svg.querySelectorAll("text")].filter((each) => each.textContent.trim());
  const inks = texts.map(inkOf);
  const boxes = [...svg.querySelectorAll("g > rect")].map((each) => each.getBoundingClientRect());
  const found = new Set();
  inks.forEach((ink, k) => {
    for (let other = k + 1; other < inks.length; other++) if (meet(ink, inks[other])) found.add(`${k} ${other}`);
    boxes.forEach((box, b) => {
      if (meet(ink, box) && !isIn(ink, box, -2)) found.add(`${k} in ${b}`);
    });
  });
  return found;
}

/** Show the part of a stage that is drawn on as large as it has room for. */
function zoom(live, svg, { wide, high }) {
  const set = (name, value) => live.style.setProperty(name, value);
  ["--story-x", "--story-y"].forEach((name) => set(name, "0px"));
  set("--story-zoom", 1);
  const { x, y, width, height } = svg.getBBox();
  const pixel = svg.clientWidth / (svg.viewBox.baseVal?.width || svg.clientWidth);
  const [across, down] = [width * pixel + 2 * EDGE, height * pixel + 2 * EDGE];
  const times = Math.min(wide / across, high / down, MOST_ZOOM);
  set("--story-zoom", times.toFixed(4));
  set("--story-x", `${((wide - across * times) / 2 - (x * pixel - EDGE) * times).toFixed(1)}px`);
  set("--story-y", `${((high - down * times) / 2 - (y * pixel - EDGE) * times).toFixed(1)}px`);
}

/** Give a story's frame `high` pixels of its own, and letters as large as they meet nothing that they did not. */
globalThis.fillStory = (live, high) => {
  const stage = live.querySelector("[data-part=stage]");
  const svg = stage.querySelector("svg");
  const say = live.querySelector("[data-part=say]");
  const lines = say.textContent.split("\n").length;
  const isUnbroken = (size) => {
    live.style.setProperty("--say", `${size}px`);
    return say.offsetHeight < (lines + 0.6) * 1.25 * size;
  };
  SAY.some(isUnbroken);
  const set = (letters) => live.style.setProperty("--story-letters", letters.toFixed(3));
  const room = { wide: stage.clientWidth, high: high - (live.scrollHeight - stage.offsetHeight) };
  live.style.setProperty("--story-high", `${room.high}px`);
  set(1);
  zoom(live, svg, room);
  const before = meetings(svg); // as large as the drawing is then
  const window = globalThis.printing ? 1 : Reveal.getScale();
  const sizes = [...svg.querySelectorAll("text")].map((each) => parseFloat(getComputedStyle(each).fontSize));
  const drawn = Math.max(DRAWN, Math.min(...sizes)); // a frame drawn for a room needs less
  const tried = (pixels) => {
    set(1);
    zoom(live, svg, room);
    for (let k = 0; k < 2; k++) {
      const seen = svg.querySelector("text").getScreenCTM().a / window;
      set(Math.max(1, pixels / (drawn * seen))); // and then all is wider
      zoom(live, svg, room);
    }
    return [...meetings(svg)].every((each) => before.has(each));
  };
  if (!LETTERS.some(tried)) tried(LEAST_WORDS);
};
