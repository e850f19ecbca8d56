// Prose on slides: as large as its slide lets it be, titles whole, and an exercise's clock.

const LOWEST = 690; // how far down it may reach, in a slide's pixels
const MOST_LETTERS = 24; // of a word that no line breaks
const BODY = 52; // pixels of its letters, on every slide that has room for them; no text is louder than its title

/** What of a slide of prose fills it: how far down that reaches, and whether a line is cut off. */
function partsOf(section) {
  const foot = section.querySelector(":scope > .about");
  const parts = [...section.children].filter((each) => !each.matches("aside, .about, .about ~ .countdown"));
  const wide = [
    ...section.querySelectorAll("pre, table, pre code, h1, h2, h3, p:not(.about, .countdown), li, li > code"),
  ];
  const lowest = foot ? foot.offsetTop - 34 : LOWEST;
  const down = () => Math.max(...parts.map((each) => each.offsetTop + each.offsetHeight));
  const cut = () => wide.some((each) => each.scrollWidth > each.clientWidth + 1 || each.offsetWidth > 1216);
  return { parts, lowest, down, cut, fits: () => down() <= lowest && !cut() };
}

/** Give a size the first of these values with which all fits; say whether there is one. */
function largest(values, set, fits) {
  return values.some((value) => {
    set(value);
    return fits();
  });
}

/** Numbers from one to another. */
const steps = (from, to, by) => Array.from({ length: Math.round((to - from) / by) + 1 }, (_, k) => from + k * by);

/** Give code and tables the height and width that are left; a question below a table keeps some of it. */
function spread(section, { parts, lowest, down, fits }) {
  const has = (kind) => section.querySelector(`:scope > ${kind}`);
  const style = (name, unit) => (value) => section.style.setProperty(name, `${value}${unit}`);
  if (has("pre")) {
    largest(steps(0.95, 0.7, -0.05), style("--code", "em"), fits);
    largest(steps(2.1, 1.35, -0.15), style("--line-height", ""), fits);
  }
  const calls = [...section.querySelectorAll(":scope.exercise li > code:first-child:has(+ br)")];
  const isOneLine = (call) => call.offsetHeight < 3 * parseFloat(getComputedStyle(call).fontSize);
  if (calls.length) {
    const set = style("--call", "em");
    if (!largest(steps(1, 0.8, -0.05), set, () => calls.every(isOneLine) && fits())) {
      largest(steps(1, 0.8, -0.05), set, fits);
    }
  }
  if (section.matches(".exercise")) {
    largest(
      steps(1.6, 1.35, -0.05),
      (value) => (section.style.lineHeight = value),
      () => down() <= lowest - 50,
    );
  }
  const isLast = (kind) => parts.at(-1).matches(kind);
  const kept = (isLast(".ask") && 60) || (isLast("table") && 24) || 0; // none stands on the slide's number
  if (has("table")) largest(steps(40, 6, -2), style("--cell", "px"), () => down() <= lowest - kept);
}

/** Let a question at the foot of a slide take what is left of it, in letters as large as that lets them be. */
function enlargeQuestion(ask, { lowest, down, cut }) {
  const height = ask.offsetHeight + lowest - down();
  const set = (size) => (ask.style.fontSize = `${size}px`);
  largest(steps(76, 26, -2), set, () => ask.offsetHeight <= height && !cut());
  ask.style.minHeight = `${height}px`;
}

/** Let prose grow until it fills its slide: what is read from the last row needs no empty half. */
globalThis.grow = (section) => {
  section.dataset.grown = "";
  const held = partsOf(section);
  const { parts, lowest, down } = held;
  const set = (size) => (section.style.fontSize = `${size}px`);
  section.dataset.names = "whole"; // of a table's rows, each in one line if letters stay large
  const table = section.querySelector(":scope > table");
  const isEven = () => held.fits() && table.rows[0].offsetHeight < 3.5 * parseFloat(getComputedStyle(table).fontSize);
  if (!table || !largest(steps(BODY, 44, -2), set, isEven)) {
    delete section.dataset.names;
    largest(steps(BODY, 26, -2), set, held.fits);
  }
  spread(section, held);
  if (parts.length === 2 && parts[1].matches(".exercise > p:not(.countdown, .ask)")) {
    parts[1].className = "ask"; // one question, and nothing else
    parts[1].innerHTML = `<span>Answer in the notebook</span><b>${parts[1].innerHTML}</b>`;
  }
  if (parts.at(-1).matches(".ask")) enlargeQuestion(parts.at(-1), held);
  const items = [...section.querySelectorAll(":scope > :is(ul, ol) > li")];
  const left = lowest - down();
  if (left > 40 && items.length > 1) {
    const more = Math.min((left * 0.85) / items.length, 72);
    items.forEach((each) => (each.style.marginBottom = `${8 + more}px`));
  }
  // What is then left is shared above and below.
  if (parts[1] && !section.querySelector(":scope > h1")) {
    parts[1].style.marginTop = `${Math.max(0, lowest - down()) * (section.matches(".exercise") ? 0.5 : 0.4)}px`;
  }
};

/** No line breaks inside a word such as all-reduce. */
for (const line of document.querySelectorAll(".slides > section :is(h1, h2, h3, p, li, b, em, strong)")) {
  if (line.closest(".live, aside")) continue;
  for (const words of [...line.childNodes].filter((each) => each.nodeType === 3)) {
    const parts = words.textContent.split(/(\S+-\S+)/).map((part, k) => {
      if (k % 2 === 0 || part.length > MOST_LETTERS) return part;
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
