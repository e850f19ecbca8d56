"use strict";
// What only the instructor's link shows: who wants help and with what, whose each mistake is, names to mend.
// Its words and what it stands on are page.js's.

const since = (seconds) => (seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min`);

async function change(what, body) {
  const answer = await fetch(`${address}/${what}`, { method: "POST", body: JSON.stringify(body) });
  if (answer.ok) await once();
  else alert(await answer.text());
}

/** Above the lanes: who wants help, in the order they asked. */
function drawHelp(section) {
  section.hidden = !instructors;
  if (!instructors) return;
  const count = standing.helped.length;
  section.classList.toggle("asked", count > 0);
  const words = count ? `${many(count, "wants", "want")} help` : "Nobody wants help";
  fill(section, words, count > 1 ? "in the order they asked" : "", standing.helped, "wants");
}

/** Beside the poll: who is long at one exercise and does not ask. */
function drawStuck(section) {
  section.hidden = !standing.stuck?.length;
  if (!section.hidden) fill(section, "Long there, not asking", "", standing.stuck, "stuck");
}

function fill(section, words, more, people, kind) {
  const title = element("h2", words);
  if (more) title.append(" ", element("small", more));
  const list = element("ol");
  list.append(...people.map((each) => person(each, kind)));
  section.replaceChildren(title, ...(people.length ? [list] : []));
}

/** Who it is, how long and since when, and with which mistake at which exercise. */
function person([name, seconds, on, mistake], kind) {
  const at = exercise(on);
  const row = element("li", undefined, kind);
  const time = kind === "wants" ? `waits ${since(seconds)}, since ${clock(seconds)}` : since(seconds);
  const what = element("span", at ? `${at.number} ` : "has not begun", "what");
  if (at) what.append(mistake ? element("b", inWords(mistake)) : at.title);
  row.append(element("b", name), " ", element("span", time, "time"), " ", what);
  if (kind === "wants") {
    const been = element("button", "mark helped");
    been.onclick = () => change("helped", { nickname: name });
    row.append(" ", been);
  }
  return row;
}

/** What the clock said so many seconds ago, "09:05". */
function clock(seconds) {
  const then = new Date(Date.now() - 1000 * seconds);
  return [then.getHours(), then.getMinutes()].map((each) => String(each).padStart(2, "0")).join(":");
}

const MOST_NAMED = 8; // whose mistake it is, is told at once; of more on a click
const MOST_KINDS = 3;

/** The commonest mistakes in words, in bold what no other is commoner than, and whose; the others on a click. */
function kinds(id, mistakes) {
  const told = mistakes.map(([name, makers]) => {
    const row = element("div", undefined, "kind");
    const isCommonest = makers.length === mistakes[0][1].length;
    row.append(element(isCommonest ? "b" : "span", `${makers.length}× ${inWords(name)}`), " ");
    row.append(whose(`${id} ${name}`, makers));
    return row;
  });
  const named = new Set(mistakes.flatMap(([, makers]) => makers));
  const asking = (standing.helped ?? []).filter(([name, , on]) => on === id && !named.has(name));
  if (instructors && asking.length) {
    const row = element("div", undefined, "kind");
    row.append(element("span", "no mistake that has a name"), " ");
    row.append(
      whose(
        `${id} nameless`,
        asking.map(([name]) => name),
      ),
    );
    told.push(row);
  }
  if (told.length <= MOST_KINDS) return told;
  const more = folded(id, `${told.length - MOST_KINDS + 1} more mistakes`);
  more.append(...told.slice(MOST_KINDS - 1));
  return [...told.slice(0, MOST_KINDS - 1), more];
}

/** Names, those first who want help, with the colour of their dots. */
function whose(key, makers) {
  const made = element("small");
  const sorted = [...makers].sort((one, other) => asks(other) - asks(one));
  const names = sorted.map((name) => element("span", name, asks(name) ? "asks" : undefined));
  const joined = (all) => all.flatMap((each, at) => (at ? [", ", each] : [each]));
  const atOnce = makers.length > MOST_NAMED ? MOST_NAMED - 1 : makers.length;
  made.append(...joined(names.slice(0, atOnce)));
  if (atOnce === makers.length) return made;
  const more = folded(key, `and ${makers.length - atOnce} more`);
  more.append(...joined(names.slice(atOnce)));
  made.append(" ", more);
  return made;
}

const clicked = new Set();

/** What opens on a click, and stays so when news comes. */
function folded(key, summary) {
  const made = element("details");
  made.open = clicked.has(key);
  made.append(element("summary", summary));
  made.ontoggle = () => {
    if (made.open === clicked.has(key)) return;
    clicked[made.open ? "add" : "delete"](key);
    draw(); // the lane has another height
  };
  return made;
}

function drawNames(details) {
  details.hidden = !instructors;
  if (!instructors) return;
  const done = new Set(standing.finished);
  const names = Object.keys(standing.learners);
  details.querySelector("summary").textContent = `Names: ${names.length}${done.size ? `, ${done.size} done` : ""}`;
  const rows = names.map((name) => {
    const on = exercise(standing.where[name]);
    const [rename, remove] = [element("button", "rename"), element("button", "remove")];
    rename.onclick = () => {
      const to = prompt(`Another name for ${name}`, name);
      if (to) change("rename", { nickname: name, to });
    };
    remove.onclick = () => {
      if (confirm(`Take ${name} off the board?`)) change("remove", { nickname: name });
    };
    const buttons = element("td");
    buttons.append(rename, remove);
    const row = element("tr");
    row.append(
      element("th", name),
      element("td", on ? `on ${on.number}` : ""),
      element("td", done.has(name) ? "done" : ""),
      buttons,
    );
    return row;
  });
  details.querySelector("table").replaceChildren(...rows);
}

Object.assign(globalThis, { drawHelp, drawStuck, drawNames, kinds });
