"use strict";
const address = location.pathname.replace(/\/$/, "");
const instructors = location.pathname.startsWith("/i/");
const SPACE = document.querySelector("svg").namespaceURI;
document.documentElement.classList.toggle("instructor", instructors);
if (instructors) document.querySelector("h1").textContent = "Class board, for the instructor";
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

const many = (count, one, more) => `${count} ${count === 1 ? one : more}`;

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
  const names = Object.keys(standing.lessons).sort();
  const select = nav.querySelector("select") ?? element("select");
  if (select.options.length !== names.length) {
    select.replaceChildren(...names.map((name) => new Option(`Lesson ${name}`, name)));
    select.setAttribute("aria-label", "Lesson");
    select.onchange = () => {
      chosen = select.value;
      draw();
    };
    nav.replaceChildren(select);
  }
  select.value = lessonShown();
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
  // The instructor reads below it who they are.
  if (standing.help && !instructors) {
    say.append(" ", element("span", `${many(standing.help, "wants", "want")} help.`, "asks"));
  }
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
  const all = [...notBegun(), ...exercisesShown()];
  const shown = all
    .filter((each) => each.on_it || each.passed)
    .map((each) => {
      const lane = lanes.get(each.id) ?? newLane(each.id);
      lane.classList.toggle("held", each.id === standing.holdup);
      const [title, people, wrong] = lane.children;
      const words = element("span", each.title.replace(/(\w) (\d)/g, "$1\u00a0$2"), "words");
      title.replaceChildren(...(each.number ? [element("b", each.number)] : []), words, ...marksOf(each));
      if (each.on_it && each.minutes) title.append(element("small", `${instructors ? "" : "for "}${each.minutes} min`));
      wrong.replaceChildren(...kinds(each.id, (standing.mistakes ?? {})[each.id] ?? []));
      people.querySelector(".count.on").textContent = each.on_it || "";
      people.querySelector(".count.passed").textContent = each.id ? each.passed : "";
      return [lane, each];
    });
  const ahead = all.filter((each) => !each.on_it && !each.passed);
  section.replaceChildren(
    ...(shown.length ? [heads()] : []),
    ...shown.map(([lane]) => lane),
    ...(ahead.length ? [nobodyYet(ahead)] : []),
  );
  if (!shown.length) return;
  section.classList.toggle("roomy", !instructors && shown.length <= MOST_ROOMY);
  const svgs = shown.map(([lane]) => lane.querySelector("svg"));
  const [on, most] = ["on_it", "passed"].map((half) => Math.max(1, ...shown.map(([, each]) => each[half])));
  const passed = instructors ? BAR : most;
  const count = document.querySelector(".count.on").offsetWidth;
  const [wide, tall] = [svgs[0].clientWidth, 0.94 * Math.min(...svgs.map((svg) => svg.clientHeight))];
  const isRoomy = section.classList.contains("roomy");
  const how = { isOneRow: instructors || isRoomy, largest: instructors ? 24 : 52 }; // pixels from dot to dot
  const [rowOf, step, split] = globalThis.dots.layout(on, passed, count + (isRoomy ? 44 : 20), wide, tall, how);
  section.style.setProperty("--split", `${100 * split}%`);
  shown.forEach(([, each], at) => drawPeople(svgs[at], each, rowOf, step, [count, wide * split + count]));
}

const BAR = 7; // dots that the instructor's bar of who has passed is as wide as
const MOST_ROOMY = 6; // lanes in which a title may have a line of its own, above the people

/** On the wall, behind a title: that most are there, and how many want help there, where that tells nobody's name. */
function marksOf({ id }) {
  if (instructors) return [];
  const wanted = (standing.help_at ?? {})[id];
  return [
    ...(wanted ? [element("span", `${many(wanted, "wants", "want")} help`, "asks")] : []),
    ...(id && id === standing.holdup ? [element("span", "most are here", "most")] : []),
  ];
}

/** What the columns of the lanes are: on the left who is on it, on the right who has passed. */
function heads() {
  const row = element("div", undefined, "heads");
  const people = element("div", undefined, "people");
  const all = Object.keys(standing.learners).length;
  const what = element("div", "exercise", "what");
  if (exercisesShown().some((each) => each.on_it && each.minutes)) what.append(element("small", "median time there"));
  people.append(
    element("span", "●\u00a0on\u00a0it"),
    element("span", instructors ? "passed" : `●\u00a0passed, of\u00a0${all}`, "passed"), // the bar's end is all
  );
  if (standing.helped?.length) people.firstChild.append(" ", element("span", "●\u00a0wants\u00a0help", "asks"));
  row.append(what, people, element("div", "last mistake, and whose", "wrong"));
  return row;
}

/** The exercises that nobody is on and nobody has passed, in one line: they take no room from the others. */
function nobodyYet(ahead) {
  const row = element("div", undefined, "lane ahead");
  row.append("Nobody yet: ", ahead.map(({ number, title }) => `${number} ${title}`).join(" · "));
  return row;
}

/** Who has joined and not checked anything yet, as a lane above all others; none where nobody has. */
function notBegun() {
  const names = Object.keys(standing.learners).filter(isNew);
  return names.length ? [{ id: "", number: "", title: "Not begun", on_it: names.length, passed: 0 }] : [];
}

const isNew = (name) => !standing.where[name] && !Object.keys(standing.learners[name]).length;

function newLane(id) {
  const lane = element("div", undefined, "lane");
  lane.dataset.id = id;
  const people = element("div", undefined, "people");
  people.append(shape("svg", { role: "img" }), element("b", "", "count on"), element("b", "", "count passed"));
  lane.append(element("div", undefined, "title"), people, element("div", undefined, "wrong"));
  return lane;
}

/** Draw who is on an exercise and who has passed it, row by row from the left of each half, behind its count. */
function drawPeople(svg, each, rowOf, step, [left, right]) {
  const tall = svg.clientHeight;
  const learners = Object.entries(standing.learners);
  const dots = new Map([...svg.children].map((dot) => [dot.dataset.name, dot]));
  const crowd = (people, isHere) =>
    people.map(([name, results], at) => {
      const dot = dots.get(name) ?? shape("circle", { cx: 0, cy: tall / 2 });
      const column = at % rowOf;
      const top = (tall - Math.ceil(people.length / rowOf) * step) / 2;
      const along = (column + 0.5 + Math.floor(column / 5) * FIVE) * step;
      const cy = top + (Math.floor(at / rowOf) + 0.5) * step;
      const place = { cx: (isHere ? left : right) + along, cy, r: step * 0.42 };
      for (const [key, value] of Object.entries(place)) dot.setAttribute(key, value);
      dot.dataset.name = name;
      dot.setAttribute("class", classOf(name, isHere));
      const tries = results[each.id]?.[1] ?? 0;
      const checks = tries ? `${isHere ? "not yet" : "passed"}, ${many(tries, "check", "checks")}` : "no check yet";
      dot.replaceChildren(shape("title", {}, `${name}: ${checks}`));
      return dot;
    });
  const here = learners
    .filter(([name]) => (each.id ? standing.where[name] === each.id : isNew(name)))
    .sort(([one], [other]) => asks(other) - asks(one)); // those who want help first
  const passed = learners.filter(([, results]) => results[each.id]?.[0]);
  const beyond = instructors
    ? passedBar(passed, learners.length, [right, svg.clientWidth], tall)
    : crowd(passed, false);
  svg.replaceChildren(...crowd(here, true), ...beyond);
  svg.setAttribute("aria-label", `${each.number}: ${here.length} on it, ${passed.length} passed`);
}

/** To the instructor, who has passed as a part of all: a bar, for whom to look for are the others. */
function passedBar(passed, all, [from, to], tall) {
  const [wide, high] = [Math.max(0, to - from - 16), 0.4 * Math.min(tall, 48)];
  const bar = (width, kind) =>
    shape("rect", { x: from, y: (tall - high) / 2, width, height: high, rx: 3, class: kind });
  const filled = bar((wide * passed.length) / all, "passed");
  filled.append(shape("title", {}, passed.map(([name]) => name).join(", ")));
  return [bar(wide, "track"), ...(passed.length ? [filled] : [])];
}

/** Where a learner is, and to the instructor whether they want help there. */
function classOf(name, isHere) {
  return isHere ? `here${isNew(name) ? " new" : ""}${asks(name) ? " asks" : ""}` : "";
}

const asks = (name) => (standing.helped ?? []).some(([who]) => who === name);

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

function drawAside(aside) {
  aside.hidden = ["#poll", "#help", "#stuck"].every((each) => document.querySelector(each).hidden);
  aside.hidden &&= !document.querySelector("#ranked").children.length;
  document.querySelector("main").classList.toggle("alone", aside.hidden);
}

const views = [
  ["nav", drawLessons],
  ["#say", drawSay],
  ["#help", drawHelp],
  ["#stuck", drawStuck],
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
    // What the board knows is for who joins, not for a wall at work.
    const knows = "The board knows nicknames, results, kinds of mistake and guesses; no code.";
    const isTold = !hasBegun();
    note.textContent = `${isTold ? knows : ""}${refresh.wrong}`;
  } catch (error) {
    note.textContent = `The board does not answer (${error.message}); the page shows what was there.`;
  }
}
addEventListener("resize", () => standing && draw());
refresh();
