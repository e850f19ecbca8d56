// What stood elsewhere a moment ago travels to its place: marks with one data-key, in the picture before and after.

import language from "../language.json" with { type: "json" };

/** The middle of every mark with a key, on the screen. */
export function placesIn(stage) {
  const places = new Map();
  for (const mark of stage.querySelectorAll("[data-key]")) {
    const { left, top, width, height } = mark.getBoundingClientRect();
    places.set(mark.dataset.key, [left + width / 2, top + height / 2]);
  }
  return places;
}

/** Let what came with the last step travel from where it was sent: marks with data-came, "dx dy" back to there. */
export function arrive(stage, pace = 1) {
  for (const mark of stage.querySelectorAll("[data-came]")) {
    const [dx, dy] = mark.dataset.came.split(" ");
    const options = { duration: language.motion_ms / pace, easing: "ease-in-out" };
    mark.animate?.([{ transform: `translate(${dx}px,${dy}px)` }, { transform: "none" }], options);
  }
}

/** Let marks travel from where they were. */
export function travel(stage, before, pace = 1) {
  const after = placesIn(stage);
  for (const mark of stage.querySelectorAll("[data-key]")) {
    const from = before.get(mark.dataset.key);
    const to = after.get(mark.dataset.key);
    const options = { duration: language.motion_ms / pace, easing: "ease-in-out" };
    if (!from) {
      mark.animate?.([{ opacity: 0 }, { opacity: 1 }], options);
      continue;
    }
    const scale = mark.getScreenCTM()?.a || 1;
    const [dx, dy] = [(from[0] - to[0]) / scale, (from[1] - to[1]) / scale];
    if (Math.abs(dx) + Math.abs(dy) < 0.5) continue;
    mark.animate?.([{ transform: `translate(${dx}px,${dy}px)` }, { transform: "none" }], options);
  }
}
