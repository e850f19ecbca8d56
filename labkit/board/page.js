"use strict";
const address = location.pathname.replace(/\/$/, "");
const instructors = location.pathname.startsWith("/i/");
const SPACE = document.querySelector("svg").namespaceURI;
document.documentElement.classList.toggle("instructor", instructors);
let standing = null;
let chosen = null;

function element(name, text, classes) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (classes) made.className = classes;
  return made;
}

function shape(name, attributes, text) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const inWords = (name) => name.replaceAll("_", " ");
const many = (count, one, more) => `${count} ${count === 1 ? one : more}`;
const since = (seconds) => (seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min`);

/** The lesson most learners are on now, else the last one that anybody passed something of, else the first. */
function busiest(lessons) {
  const names = Object.keys(lessons).sort();
  const sum = (name, field) => lessons[name].reduce((total, each) => total + each[field], 0);
  const passed = names.filter((name) => sum(name, "passed"));
  return names.reduce(
    (best, name) => (sum(name, "on_it") > sum(best, "on_it") ? name : best),
    passed.pop() || names[0],
  );
}

const lessonShown = () => chosen || busiest(standing.lessons);
const exercisesShown = () => standing.lessons[lessonShown()] || [];
const exercise = (id) =>
  Object.values(standing.lessons)
    .flat()
    .find((each) => each.id === id);
const hasBegun = () => Object.values(standing.learners).some((results) => Object.keys(results).length);

function drawLessons(nav) {
  const lesson = lessonShown();
  const buttons = Object.keys(standing.lessons)
    .sort()
    .map((name) => {
      const button = element("button", name);
      button.setAttribute("aria-pressed", name === lesson);
      button.onclick = () => {
        chosen = name;
        draw();
      };
      return button;
    });
  nav.replaceChildren(...buttons);
}

function drawSay(say) {
  const learners = Object.keys(standing.learners).length;
  const held = exercise(standing.holdup);
  const said = [];
  if (held) {
    const on = `${held.on_it} of ${learners} ${held.on_it === 1 ? "is" : "are"} on ${held.number} ${held.title}`;
    said.push(on + (held.minutes ? `, for ${held.minutes} min.` : "."));
  } else if (hasBegun()) said.push("Nobody is in the middle of an exercise.");
  else said.push(learners ? `${many(learners, "learner is", "learners are")} here.` : "Nobody has joined yet.");
  say.textContent = said.join(" ");
  if (standing.help) say.append(" ", element("span", `${many(standing.help, "wants", "want")} help.`, "asks"));
  if (standing.done) say.append(` ${many(standing.done, "is", "are")} done.`);
}

const FOOT = 60; // pixels

/** Before the first check: how to join, as large as it fits, and who has. */
function drawLobby(lobby) {
  lobby.hidden = hasBegun() || instructors;
  document.querySelector("#lanes").hidden = !lobby.hidden;
  if (lobby.hidden) return;
  const link = location.origin + address;
  const code = element("code", link);
  code.style.setProperty("--letters", link.length);
  const came = element("div", undefined, "came");
  came.append(...Object.keys(standing.learners).map((name) => element("span", name)));
  const how = element("p", 'In any notebook: labkit.join_class("the link", "a nickname")');
  lobby.replaceChildren(code, how, came);
  // All of them on one screen, above the line at its foot.
  for (let size = 2.2; size > 0.6 && came.getBoundingClientRect().bottom > innerHeight - FOOT; size *= 0.93) {
    came.style.fontSize = `${size * 0.93}rem`;
  }
}

/** Each learner stands in the lane of what they are on, and right in every lane that they have passed. */
function drawLanes(section) {
  const lanes = new Map([...section.querySelectorAll(".lane")].map((lane) => [lane.dataset.id, lane]));
  const shown = [...notBegun(), ...exercisesShown()].map((each) => {
    const lane = lanes.get(each.id) ?? newLane(each.id);
    lane.classList.toggle("held", each.id === standing.holdup);
    lane.classList.toggle("ahead", !each.on_it && !each.passed);
    const [title, , count, wrong] = lane.children;
    title.replaceChildren(...(each.number ? [element("b", each.number)] : []), each.title);
    if (each.on_it) {
      const on = each.id ? "on it" : "here";
      title.append(element("small", `${each.on_it} ${on}${each.minutes ? `, for ${each.minutes} min` : ""}`));
    }
    const isOpen = wrong.querySelector("details")?.open;
    wrong.replaceChildren(...kinds((standing.mistakes ?? {})[each.id] ?? [], isOpen));
    count.textContent = each.passed ? `${each.passed} ✓` : "";
    return [lane, each];
  });
  section.replaceChildren(...(shown.length ? [heads()] : []), ...shown.map(([lane]) => lane));
  const fullest = Math.max(1, ...shown.flatMap(([, each]) => [each.on_it, each.passed]));
  const lanesTall = shown.map(([lane]) => lane.children[1].clientHeight);
  const peopled = lanesTall.filter((_, at) => shown[at][1].on_it || shown[at][1].passed);
  const tall = Math.min(...(peopled.length ? peopled : lanesTall));
  const rows = rowsFor(fullest, shown[0]?.[0].children[1].clientWidth ?? 0, tall);
  shown.forEach(([lane, each], at) =>
    drawPeople(lane.children[1], each, rows, tall / rows, (lanesTall[at] - tall) / 2),
  );
}

/** What the columns of the lanes are: on the left who is on it, on the right who has passed. */
function heads() {
  const row = element("div", undefined, "heads");
  const people = element("div", undefined, "people");
  people.append(element("span", "● on it"), element("span", "passed ●", "passed"));
  row.append(element("div", "exercise", "what"), people, element("div"), element("div", "goes wrong", "wrong"));
  return row;
}

/** Who has joined and not checked anything yet, as a lane above all others; none where nobody has. */
function notBegun() {
  const names = Object.keys(standing.learners).filter(isNew);
  return names.length ? [{ id: "", number: "", title: "Not begun", on_it: names.length, passed: 0 }] : [];
}

const isNew = (name) => !standing.where[name] && !Object.keys(standing.learners[name]).length;

/** The two commonest mistakes in words, in bold what no other is commoner than; the others open below. */
function kinds(mistakes, isOpen) {
  const told = mistakes.map(([name, times]) => {
    const isCommonest = times === mistakes[0][1];
    return element("span", `${times}× ${inWords(name)}`, isCommonest ? "commonest" : undefined);
  });
  if (told.length < 3) return told;
  const more = element("details");
  more.open = Boolean(isOpen);
  more.append(element("summary", `${told.length - 2} more`), ...told.slice(2));
  more.ontoggle = () => more.open !== Boolean(isOpen) && draw(); // the lane has another height
  return [...told.slice(0, 2), more];
}

function newLane(id) {
  const lane = element("div", undefined, "lane");
  lane.dataset.id = id;
  const people = shape("svg", { role: "img" });
  lane.append(element("div", undefined, "title"), people, element("div", undefined, "count"));
  lane.append(element("div", undefined, "wrong"));
  return lane;
}

/** Rows of dots in a lane: the fewest with which the fullest crowd fits into its half, at least two. */
function rowsFor(crowd, wide, tall) {
  let rows = 2;
  while ((Math.ceil(crowd / rows) * tall) / rows > wide / 2 - tall / 4) rows += 1;
  return rows;
}

function drawPeople(svg, each, rows, step, top) {
  const wide = svg.clientWidth;
  const learners = Object.entries(standing.learners);
  const dots = new Map([...svg.children].map((dot) => [dot.dataset.name, dot]));
  const crowd = (people, isHere) =>
    people.map(([name, results], at) => {
      const dot = dots.get(name) ?? shape("circle", { cx: 0, cy: top });
      const along = (Math.floor(at / rows) + 0.5) * step;
      const place = { cx: isHere ? along : wide - along, cy: top + ((at % rows) + 0.5) * step, r: step * 0.4 };
      for (const [key, value] of Object.entries(place)) dot.setAttribute(key, value);
      dot.dataset.name = name;
      dot.setAttribute("class", classOf(name, isHere));
      const tries = results[each.id]?.[1] ?? 0;
      const checks = tries ? `${isHere ? "not yet" : "passed"}, ${many(tries, "check", "checks")}` : "no check yet";
      dot.replaceChildren(shape("title", {}, `${name}: ${checks}`));
      return dot;
    });
  const here = learners.filter(([name]) => (each.id ? standing.where[name] === each.id : isNew(name)));
  const passed = learners.filter(([, results]) => results[each.id]?.[0]);
  svg.replaceChildren(...crowd(here, true), ...crowd(passed, false));
  svg.setAttribute("aria-label", `${each.number}: ${here.length} on it, ${passed.length} passed`);
}

/** Where a learner is, and to the instructor whether they want help there. */
function classOf(name, isHere) {
  if (!isHere) return "";
  const asks = (standing.helped ?? []).some(([who]) => who === name);
  return `here${isNew(name) ? " new" : ""}${asks ? " asks" : ""}`;
}

function drawRanked(ranked) {
  const sections = exercisesShown()
    .filter((each) => standing.rankings[each.id])
    .map((each) => {
      const best = standing.rankings[each.id].map(([nickname, score], place) =>
        element("li", `${place + 1}. ${nickname}, ${score.toFixed(2)} of the best known`),
      );
      const list = element("ol");
      list.append(...best);
      const section = element("section");
      section.append(element("h2", `${each.number} ${each.title}`), list);
      return section;
    });
  ranked.replaceChildren(...sections);
}

function drawPoll(section) {
  const poll = standing.poll;
  section.hidden = !poll;
  if (!poll) return;
  const made = globalThis.guesses.bars(poll.values);
  const most = Math.max(...made.map(([, count]) => count));
  const step = 620 / made.length;
  const unit = poll.unit ? ` (${poll.unit})` : "";
  section.querySelector("h2").textContent =
    `${many(poll.values.length, "guess", "guesses")}: ${inWords(poll.guess)}${unit}`;
  const svg = section.querySelector("svg");
  const tall = Math.max(260, (640 * svg.clientHeight) / (svg.clientWidth || 640));
  svg.style.setProperty("--letters", made.filter(([, count]) => count).length > 8 ? "20px" : "26px");
  svg.setAttribute("viewBox", `0 0 640 ${tall}`);
  const floor = tall - 40;
  const drawn = made.flatMap(([label, count], at) => {
    const high = ((floor - 80) * count) / most;
    return [
      shape("rect", { x: 10 + at * step + 2, y: floor - high, width: Math.max(1, step - 4), height: high }),
      shape("text", { x: 10 + (at + 0.5) * step, y: floor - high - 8 }, count ? String(count) : ""),
      shape("text", { x: 10 + (at + 0.5) * step, y: floor + 24 }, label.slice(0, 12)),
    ];
  });
  let said = made
    .filter(([, count]) => count)
    .map(([label, count]) => `${label}: ${count}`)
    .join(", ");
  if (poll.came_out !== null) {
    const at = globalThis.guesses.fallsAt(poll.came_out, poll.values, made);
    const x = at === null ? 320 : 10 + at * step;
    const text = `it is ${globalThis.guesses.readable(poll.came_out)} ${poll.unit}`.trim();
    if (at !== null) drawn.push(shape("line", { x1: x, x2: x, y1: 36, y2: floor, class: "out" }));
    drawn.push(shape("text", { x: Math.max(120, Math.min(520, x)), y: 28, class: "out" }, text));
    said += `; ${text}`;
  }
  svg.setAttribute("aria-label", said);
  // Words last, so that no line crosses them.
  const isWords = ({ nodeName }) => nodeName === "text";
  svg.replaceChildren(...drawn.filter((each) => !isWords(each)), ...drawn.filter(isWords));
  drawReveal(section.querySelector("button"), poll);
}

function drawReveal(reveal, poll) {
  reveal.hidden = !instructors || poll.came_out !== null;
  reveal.disabled = standing.came_out === null;
  reveal.textContent = reveal.disabled ? "Reveal: nobody's machine has measured it yet" : "Reveal what came out";
  reveal.onclick = () => change("reveal", { guess: poll.guess });
}

async function change(what, body) {
  const answer = await fetch(`${address}/${what}`, { method: "POST", body: JSON.stringify(body) });
  if (answer.ok) await once();
  else alert(await answer.text());
}

// What only the instructor's link shows: who wants help and with what, who is done, names to mend.

function drawHelp(section) {
  section.hidden = !instructors;
  if (!instructors) return;
  section.classList.toggle("asked", standing.helped.length > 0);
  const rows = standing.helped.map(([name, seconds, on, mistake]) => {
    const at = exercise(on);
    const row = element("li", undefined, "wants");
    const what = element("div", at ? `${at.number} ${at.title}` : "has not begun");
    if (mistake) what.append(": ", element("b", inWords(mistake)));
    row.append(element("b", name), " ", element("span", since(seconds), "asks"), what);
    return row;
  });
  const list = element("ol");
  list.append(...rows);
  const order = rows.length > 1 ? ", longest wait first" : "";
  const title = element("h2", rows.length ? `${many(rows.length, "wants", "want")} help` : "Nobody wants help");
  title.append(element("small", order));
  section.replaceChildren(title, list);
}

function drawAside(aside) {
  aside.hidden = ["#poll", "#help"].every((each) => document.querySelector(each).hidden);
  aside.hidden &&= !document.querySelector("#ranked").children.length;
  document.querySelector("main").classList.toggle("alone", aside.hidden);
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

const views = [
  ["nav", drawLessons],
  ["#say", drawSay],
  ["#help", drawHelp],
  ["#lobby", drawLobby],
  ["#poll", drawPoll],
  ["#ranked", drawRanked],
  ["aside", drawAside],
  ["#names", drawNames],
  ["#lanes", drawLanes], // last, for they have the room that the others leave
];

/** Draw everything, and return in words what could not be drawn: one view's error never takes another's. */
function draw() {
  const wrong = [];
  for (const [where, view] of views) {
    try {
      view(document.querySelector(where));
    } catch (error) {
      wrong.push(`${where.replace("#", "")}: ${error.message}`);
      console.error(error);
    }
  }
  return wrong.length ? ` Not drawn: ${wrong.join("; ")}.` : "";
}

async function refresh() {
  await once();
  setTimeout(refresh, 2000);
}

async function once() {
  const note = document.getElementById("note");
  try {
    const answer = await fetch(`${address}/standing`);
    if (!answer.ok) throw new Error(await answer.text());
    const text = await answer.text();
    if (text !== refresh.last) {
      standing = JSON.parse(text);
      refresh.wrong = draw();
      refresh.last = text;
    }
    const knows = "nicknames, results, kinds of mistake and guesses; no code";
    note.replaceChildren();
    if (document.querySelector("circle.new")) note.append("○ not begun · ");
    if (document.querySelector("circle.asks")) note.append(element("span", "● wants help", "asks"), " · ");
    note.append(`The board knows ${knows}.${refresh.wrong}`);
  } catch (error) {
    note.textContent = `The board does not answer (${error.message}); the page shows what was there.`;
  }
}
addEventListener("resize", () => standing && draw());
refresh();
