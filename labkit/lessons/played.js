// Judges what a reader of a played lesson answers; the page holds guesses, questions and what was measured.

const results = new Map();
for (const script of document.querySelectorAll("script[data-result]")) {
  results.set(script.dataset.result, JSON.parse(script.textContent));
}

const number = (text) => {
  const plain = text.trim().replace(",", ".");
  return plain === "" || Number.isNaN(Number(plain)) ? null : Number(plain);
};

const round = (value) => Number(value.toPrecision(2)).toLocaleString("en");

// The words of labkit.reveal.
const howFar = (guess, result, unit) => {
  if (guess === result) return "exactly";
  if (unit === "%") {
    const apart = round(Math.abs(result - guess));
    return `${apart} percentage point${apart === "1" ? "" : "s"} too ${guess > result ? "high" : "low"}`;
  }
  if (guess * result <= 0 || guess < 0) return `off by ${round(Math.abs(result - guess))}`;
  const way = guess > result ? "high" : "low";
  const share = Math.abs(guess / result - 1);
  if (share < 0.005) return "within 1 %";
  if (share < 0.5) return `${(100 * share).toFixed(0)} % too ${way}`;
  return `too ${way} by a factor of ${round(Math.max(guess / result, result / guess))}`;
};

const told = (form, text, right) => {
  const said = form.querySelector(".said");
  said.textContent = text;
  said.classList.toggle("right", right === true);
  said.classList.toggle("wrong", right === false);
};

const reveal = (name) => {
  for (const shown of document.querySelectorAll(`[data-after="${name}"]`)) shown.hidden = false;
  dispatchEvent(new Event("resize")); // a drawing that was hidden had no width
};

for (const form of document.querySelectorAll("form[data-guess]")) {
  const name = form.dataset.guess;
  const result = results.get(name);
  if (result?.unit) form.querySelector(".unit").textContent = `, in ${result.unit}`;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const guess = number(form.querySelector("input").value);
    if (guess === null) {
      told(form, "Write a number.");
      return;
    }
    told(form, `It is ${result.told}. Your guess: ${howFar(guess, Number(result.result), result.unit)}.`);
    reveal(name);
  });
  form.querySelector("button.plain").addEventListener("click", () => {
    told(form, `It is ${result.told}.`);
    reveal(name);
  });
}

const isRight = (key, name, given) => {
  const wanted = key.answers[name];
  if (typeof wanted !== "number") return given === wanted;
  return given !== null && Math.abs(given - wanted) <= Math.abs(wanted) * (key.within[name] ?? 0) + 1e-9;
};

for (const form of document.querySelectorAll("form[data-question]")) {
  const key = JSON.parse(document.getElementById(`question-${form.dataset.question}`).textContent);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const names = Object.keys(key.fields);
    const given = {};
    for (const name of names) {
      const value = form.querySelector(`[name="${name}"]`).value;
      given[name] = key.fields[name].choices.length ? value : number(value);
    }
    const wrong = names.filter((name) => !isRight(key, name, given[name]));
    if (wrong.length === 0) {
      told(form, `Right. ${key.reason}`, true);
      return;
    }
    const fits = ({ when }) => Object.entries(when).every(([name, value]) => given[name] === value);
    const hint = key.hints.find(fits)?.says ?? "";
    const asked = names.length > 1 ? `Still wrong: ${wrong.map((name) => key.fields[name].asks).join("; ")}.` : "";
    told(form, `Not yet. ${asked} ${hint}`.trim(), false);
  });
}
