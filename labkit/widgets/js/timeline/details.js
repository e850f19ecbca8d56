// What is told of one event, and the way to the line of code that it comes from.

import { rowOf } from "./complete.js";
import { button, element } from "./element.js";
import { kinOf } from "./kin.js";
import { labelOf } from "./kinds.js";
import { streamOf } from "./unsplit.js";
import { bytesText, named, timeText } from "./words.js";

const LIT_MS = 2500;
const BESIDE = 14; // pixels between the pointer and what it is told

function messageWords(run, event) {
  return (run.flowsOf.get(event) ?? []).map((f) => {
    const [from, to] = [run.flow_from[f], run.flow_to[f]];
    return event === from ? `received at ${timeText(run.end[to])}` : `sent at ${timeText(run.start[from])}`;
  });
}

/** What its stream waited for until it began, and how long. */
function heldWords(run, event) {
  const { held_to: to = [], held_from: from, held_since: since, held_until: until } = run;
  const at = to.indexOf(event);
  if (at < 0) return [];
  return [`waited ${timeText(until[at] - since[at])} for ${labelOf(run, from[at])[0]}`];
}

/** { text, source, code } of an event: rank, what, when, with whom, how much, how surely. */
export function describe(run, event) {
  const [name, kind, , peer, source, code] = labelOf(run, event);
  const row = rowOf(run, event);
  const begin = run.start[event];
  const what = kind === name || kind === "span" ? name : `${name} (${kind})`;
  const parts = [named(run, `rank ${row.rank}`), what, `${timeText(run.end[event] - begin)} from ${timeText(begin)}`];
  if (peer >= 0) parts.push(/recv|serve/.test(kind) ? `from rank ${peer}` : `to rank ${peer}`);
  if (run.bytes[event] && row.lane) parts.push(bytesText(run.bytes[event]));
  if (streamOf(run, event)) parts.push(`on ${streamOf(run, event)}`);
  const error = run.errorOf(row.rank);
  if (error) parts.push(`clock ± ${timeText(error)}`);
  return { text: [...parts, ...messageWords(run, event), ...heldWords(run, event)].join(", "), source, code };
}

/** Its line, which is a button where it stands in a cell of this notebook. */
function lineOf(view, source, code) {
  if (!source) return [" · no source line recorded"];
  const go = () => {
    const page = view.root.closest(".jp-Notebook") ?? document;
    if (!goToLine(source, page)) view.say(`${source} is not in view: scroll to it in this notebook.`);
  };
  const place = source.startsWith("Cell") ? button(source, "go to this line", go, { class: "labkit-source" }) : source;
  return [" · ", place, element("code", {}, code)];
}

/** Write what an event is below the picture, and say it aloud if asked. */
export function showDetail(view, run, event, aloud) {
  const { text, source, code } = describe(view.state.runs[run], event);
  view.detail.replaceChildren(text, ...lineOf(view, source, code));
  if (aloud) view.spoken.textContent = text + (source ? `, ${source}: ${code}` : "");
}

/** Tell of what is under the pointer, beside it, and light what is one thing with it on every rank. */
export function hover(view, found, at) {
  const { state } = view;
  view.canvas.style.cursor = found ? "pointer" : "crosshair";
  tellAt(view, found, at);
  const shown = found ?? state.focus;
  const key = shown ? `${shown.run}:${shown.event}` : "";
  if (view.over === key) return;
  view.over = key;
  state.lit = shown ? kinOf(state.runs[shown.run], shown.event) : new Set();
  state.litRun = shown?.run;
  if (shown) showDetail(view, shown.run, shown.event, false);
  view.invalidate();
}

function tellAt({ tip, root, state }, found, at) {
  tip.hidden = !(found && at);
  if (tip.hidden) return;
  tip.textContent = describe(state.runs[found.run], found.event).text;
  const { left, top, width } = root.getBoundingClientRect();
  tip.style.left = `${Math.max(Math.min(at.clientX - left + BESIDE, width - tip.offsetWidth), 0)}px`;
  tip.style.top = `${at.clientY - top + BESIDE}px`;
}

/** Bring "Cell In[5], line 3" of this notebook into view; false where the page does not hold it just now. */
function goToLine(source, page) {
  const [, count, line] = /In\[(\d+)\], line (\d+)/.exec(source) ?? [];
  const prompts = [...page.querySelectorAll(".jp-InputPrompt")];
  const prompt = prompts.find((each) => each.textContent.trim() === `[${count}]:`);
  const at = prompt?.closest(".jp-Cell")?.querySelectorAll(".cm-line")[line - 1];
  if (!at) return false;
  at.scrollIntoView({ block: "center" });
  at.classList.add("labkit-here");
  setTimeout(() => at.classList.remove("labkit-here"), LIT_MS);
  return true;
}
