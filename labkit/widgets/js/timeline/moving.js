// From event to event and through time: focus, cursor, measuring, playing.

import { labelOf } from "./kinds.js";
import { lowerBound } from "./search.js";
import { hit, nextEdge } from "./edges.js";
import { kinOf } from "./kin.js";
import { placeOf, shiftOf } from "./layout.js";
import { numbers } from "./numbers.js";
import { named, percentText, timeText } from "./words.js";

const PLAY_MS = 6000;
const MOST_TOLD = 12;

/** Zoom to the measured interval, or to the event in focus, or out to the whole. */
export function zoomToMark(view) {
  const { focus, measured, runs, whole } = view.state;
  const eventTimes = () => [runs[focus.run].start[focus.event], runs[focus.run].end[focus.event]];
  const [a, b] = measured ?? (focus ? eventTimes() : whole);
  if (b > a) view.show(a - 0.1 * (b - a), b + 0.1 * (b - a));
}

/** Select an event and show it with what lies around it: it fills a third of the view. */
export function openAt(view, run, event) {
  const { runs, whole } = view.state;
  const { start, end } = runs[run];
  const long = Math.max(end[event] - start[event], (whole[1] - whole[0]) / 1000);
  setFocus(view, run, event);
  view.show(start[event] - long, end[event] + long);
}

/** Select an event, bring it into view, and tell what it is. */
export function setFocus(view, run, event) {
  const { state } = view;
  const of = state.runs[run];
  const shift = shiftOf(state, run);
  const [a, b] = state.view;
  const begin = of.start[event] + shift;
  state.focus = { run, event };
  [state.lit, state.litRun] = [kinOf(of, event), run];
  if (begin > b || of.end[event] + shift < a) view.show(begin - (b - a) / 3, begin + ((b - a) * 2) / 3);
  view.revealRow(run, event);
  view.showDetail(run, event, true);
  view.invalidate();
}

/** Go to the previous or next event of the row in focus; at first to the first one in view. */
export function step(view, direction) {
  const { focus } = view.state;
  if (!focus) {
    stepRow(view, 0);
    return;
  }
  const { row } = placeOf(view.state, focus.run, focus.event);
  const next = focus.event + direction;
  if (next >= row.first && next < row.last) {
    setFocus(view, focus.run, next);
    return;
  }
  const which = direction > 0 ? "last" : "first";
  view.say(`That was the ${which} of ${row.last - row.first} events in this row of rank ${row.rank}.`);
}

/** Go to the event at the same time in the next row above or below that has events. */
export function stepRow(view, direction) {
  const { focus, layout, runs } = view.state;
  const { rows } = layout;
  const at = focus ? runs[focus.run].start[focus.event] : view.state.view[0];
  const from = focus ? rows.indexOf(placeOf(view.state, focus.run, focus.event)) + direction : 0;
  for (let i = from; i >= 0 && i < rows.length; i += direction || 1) {
    const { run, row } = rows[i];
    if (row.first === row.last) continue;
    const event = Math.min(lowerBound(runs[run].start, row.first, row.last, at), row.last - 1);
    setFocus(view, run, event);
    return;
  }
}

/** Put the cursor on the previous or next edge of any event. */
export function stepEdge(view, direction) {
  const { state } = view;
  setCursor(view, nextEdge(state, state.cursor ?? state.view[0], direction));
}

/** What every row does at a time, in words. */
function doingAt(state, time) {
  return state.runs.flatMap((run, number) =>
    run.rows.flatMap((row) => {
      const event = hit(run, row, time - shiftOf(state, number));
      return event < 0 ? [] : [named(run, `rank ${row.rank}: ${labelOf(run, event)[0]}`)];
    }),
  );
}

/** Put the cursor at a time, and tell what happens there; or measure up to it. */
export function setCursor(view, time) {
  const { state } = view;
  const [a, b] = state.view;
  state.cursor = time;
  if (time < a || time > b) view.show(time - (b - a) / 4, time + ((b - a) * 3) / 4);
  if (state.from !== null) {
    measure(view, state.from, time);
    return;
  }
  const doing = doingAt(state, time);
  const more = doing.length > MOST_TOLD ? ", ..." : "";
  const text = `${timeText(time)}: ${doing.slice(0, MOST_TOLD).join(", ") || "all idle"}${more}`;
  view.detail.textContent = text;
  if (!view.playing) view.spoken.textContent = text;
  view.invalidate();
}

/** Measure from the cursor to wherever it goes next. */
export function measureFrom(view) {
  const { state } = view;
  state.from = state.cursor;
  const isThere = state.from !== null;
  view.say(
    isThere ? `Measuring from ${timeText(state.from)}: move the cursor.` : "First place the cursor, with [ or ].",
  );
}

/** Mark an interval, and tell how long it is and how busy the ranks are in it. */
export function measure(view, ...ends) {
  const { state } = view;
  const [a, b] = ends.sort((p, q) => p - q);
  state.measured = [a, b];
  const busy = state.runs.map((run, number) => {
    const shift = shiftOf(state, number);
    const { busyShare, blockedShare } = numbers(run, a - shift, b - shift);
    return named(run, `${percentText(busyShare)}, blocked ${percentText(blockedShare)}`);
  });
  const when = `${timeText(b - a)}, from ${timeText(a)} to ${timeText(b)}`;
  view.say(`Measured: ${when}; ranks busy ${busy.join(", ")}.`);
  view.invalidate();
}

/** Let the cursor run through what is in view, or stop it; readers who want less motion step it instead. */
export function play(view) {
  if (view.playing) {
    cancelAnimationFrame(view.playing);
    view.playing = null;
    return;
  }
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    view.say("Your system asks for reduced motion: step the cursor with [ and ].");
    return;
  }
  const { cursor } = view.state;
  const [a, b] = view.state.view;
  const from = cursor === null || cursor >= b ? a : Math.max(cursor, a);
  let begin = null;
  const tick = (now) => {
    begin ??= now;
    const time = from + ((b - a) * (now - begin)) / PLAY_MS;
    view.playing = time < b ? requestAnimationFrame(tick) : null;
    setCursor(view, Math.min(time, b));
  };
  view.playing = requestAnimationFrame(tick);
}
