"use strict";
const address = location.pathname.replace(/\/$/, "");
const instructors = location.pathname.startsWith("/i/");
const SPACE = document.querySelector("svg").namespaceURI;
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
const since = (minutes) => (minutes ? `for ${minutes} min` : "just now");

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
  if (standing.help) said.push(`${many(standing.help, "wants", "want")} help.`);
  if (standing.done) said.push(`${many(standing.done, "is", "are")} done.`);
  say.textContent = said.join(" ");
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
  for (let size = 1.5; size > 0.6 && came.getBoundingClientRect().bottom > innerHeight - FOOT; size *= 0.93) {
    came.style.fontSize = `${size}rem`;
  }
}

/** Each learner stands in the lane of what they are on, and right in every lane that they have passed. */
function drawLanes(section) {
  const lanes = new Map([...section.children].map((lane) => [lane.dataset.id, lane]));
  const shown = exercisesShown().map((each) => {
    const lane = lanes.get(each.id) ?? newLane(each.id);
    lane.classList.toggle("held", each.id === standing.holdup);
    const [title, , count] = lane.children;
    title.replaceChildren(element("b", each.number), each.title);
    if (each.on_it) {
      title.append(element("small", `${each.on_it} on it${each.minutes ? `, for ${each.minutes} min` : ""}`));
    }
    const mistakes = (standing.mistakes ?? {})[each.id];
    if (mistakes) title.append(element("em", kinds(mistakes)));
    count.textContent = `${each.passed} ✓`;
    return [lane, each];
  });
  section.replaceChildren(...shown.map(([lane]) => lane));
  const fullest = Math.max(1, ...shown.flatMap(([, each]) => [each.on_it, each.passed]));
  const lanesTall = shown.map(([lane]) => lane.children[1].clientHeight);
  const tall = Math.min(...lanesTall);
  const rows = rowsFor(fullest, shown[0]?.[0].children[1].clientWidth ?? 0, tall);
  shown.forEach(([lane, each], at) =>
    drawPeople(lane.children[1], each, rows, tall / rows, (lanesTall[at] - tall) / 2),
  );
}

/** The two commonest mistakes; all of them where the pointer rests. */
function kinds(mistakes) {
  const told = mistakes.map(([name, times]) => `${times}× ${inWords(name)}`);
  return told.slice(0, 2).join(", ") + (told.length > 2 ? `, ${told.length - 2} more` : "");
}

function newLane(id) {
  const lane = element("div", undefined, "lane");
  lane.dataset.id = id;
  lane.append(element("div", undefined, "title"), shape("svg", { role: "img" }), element("div", undefined, "count"));
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
      dot.setAttribute("class", isHere ? "here" : "");
      const tries = results[each.id]?.[1] ?? 0;
      const checks = tries ? `${isHere ? "not yet" : "passed"}, ${many(tries, "check", "checks")}` : "no check yet";
      dot.replaceChildren(shape("title", {}, `${name}: ${checks}`));
      return dot;
    });
  const here = learners.filter(([name]) => standing.where[name] === each.id);
  const passed = learners.filter(([, results]) => results[each.id]?.[0]);
  svg.replaceChildren(...crowd(here, true), ...crowd(passed, false));
  svg.setAttribute("aria-label", `${each.number}: ${here.length} on it, ${passed.length} passed`);
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

/** Everybody's guesses without names: numbers first, in up to 12 bins, then the 12 commonest words and flags. */
function bars(values) {
  const numbers = numbersOf(values);
  const words = counted(values.filter((each) => typeof each !== "number")).sort((one, other) => other[1] - one[1]);
  const rest = words.splice(MOST_BARS).reduce((sum, [, count]) => sum + count, 0);
  return [...binned(numbers), ...words, ...(rest ? [["other words", rest]] : [])];
}

function counted(values) {
  const counts = new Map();
  for (const each of values) counts.set(each, (counts.get(each) ?? 0) + 1);
  return [...counts].map(([value, count]) => [String(value), count]);
}

const MOST_BARS = 12;
const numbersOf = (values) => values.filter((each) => typeof each === "number").sort((one, other) => one - other);

/** The bins of numbers in order: on a logarithmic axis where they spread over more than two decades. */
function axis(numbers) {
  const isSpread = numbers[0] > 0 && numbers.at(-1) / numbers[0] > 100;
  const to = isSpread ? (x) => (x > 0 ? Math.log10(x) : -Infinity) : (x) => x;
  const low = to(numbers[0]);
  const width = (to(numbers.at(-1)) - low) / MOST_BARS;
  const begins = Array.from({ length: MOST_BARS }, (_, at) => low + at * width);
  return {
    begins: isSpread ? begins.map((begin) => 10 ** begin) : begins,
    bins: (value) => Math.max(0, Math.min(MOST_BARS, (to(value) - low) / width)),
  };
}

function binned(numbers) {
  if (new Set(numbers).size <= MOST_BARS) return counted(numbers);
  const { begins, bins } = axis(numbers);
  const made = begins.map((begin) => [Number(begin.toPrecision(2)).toLocaleString("en"), 0]);
  for (const each of numbers) made[Math.min(MOST_BARS - 1, Math.floor(bins(each)) || 0)][1] += 1;
  return made;
}

/** Where the value that came out falls: between the bars of numbers, on the bar of a word; null where there is none. */
function fallsAt(value, values, made) {
  if (typeof value !== "number") {
    const at = made.findIndex(([label]) => label === String(value));
    return at < 0 ? null : at + 0.5;
  }
  const numbers = numbersOf(values);
  const distinct = [...new Set(numbers)];
  if (!distinct.length) return null;
  if (distinct.length > MOST_BARS) return axis(numbers).bins(value);
  const exact = distinct.indexOf(value);
  return exact >= 0 ? exact + 0.5 : distinct.filter((each) => each < value).length;
}

const readable = (value) =>
  typeof value === "number" ? Number(value.toPrecision(3)).toLocaleString("en") : String(value);

function drawPoll(section) {
  const poll = standing.poll;
  section.hidden = !poll;
  if (!poll) return;
  const made = bars(poll.values);
  const most = Math.max(...made.map(([, count]) => count));
  const step = 620 / made.length;
  const unit = poll.unit ? ` (${poll.unit})` : "";
  section.querySelector("h2").textContent =
    `${many(poll.values.length, "guess", "guesses")}: ${inWords(poll.guess)}${unit}`;
  const svg = section.querySelector("svg");
  const tall = Math.max(260, (640 * svg.clientHeight) / (svg.clientWidth || 640));
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
    const at = fallsAt(poll.came_out, poll.values, made);
    const x = at === null ? 320 : 10 + at * step;
    const text = `it is ${readable(poll.came_out)} ${poll.unit}`.trim();
    if (at !== null) drawn.push(shape("line", { x1: x, x2: x, y1: 36, y2: floor, class: "out" }));
    drawn.push(shape("text", { x: Math.max(120, Math.min(520, x)), y: 28, class: "out" }, text));
    said += `; ${text}`;
  }
  svg.setAttribute("aria-label", said);
  svg.replaceChildren(...drawn);
  drawReveal(section.querySelector("button"), poll);
}

function drawReveal(reveal, poll) {
  reveal.hidden = !instructors || poll.came_out !== null;
  reveal.disabled = standing.came_out === null;
  reveal.title = reveal.disabled ? "nobody's machine has measured it yet" : "shows the room what came out";
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
  const items = standing.helped.map(([name, minutes, on, mistake]) => {
    const at = exercise(on);
    const what = [since(minutes), at ? `${at.number} ${at.title}` : "", mistake ? inWords(mistake) : ""].filter(
      Boolean,
    );
    return element("li", `${name}: ${what.join(", ")}`, "wants");
  });
  const list = element("ul");
  list.append(...items);
  const title = items.length ? `${many(items.length, "wants", "want")} help` : "Nobody wants help";
  section.replaceChildren(element("h2", title), list);
}

function drawAside(aside) {
  aside.hidden = document.querySelector("#poll").hidden && !document.querySelector("#ranked").children.length;
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
    note.textContent = `Left in a lane: who is on it; right: who has passed. The board knows ${knows}.${refresh.wrong}`;
  } catch (error) {
    note.textContent = `The board does not answer (${error.message}); the page shows what was there.`;
  }
}
addEventListener("resize", () => standing && draw());
refresh();
