const table = document.getElementById("marks");
const body = table.tBodies[0];
const rows = [...body.rows];
const find = document.getElementById("find");
const all = document.getElementById("all");
const bars = [...document.querySelectorAll("#bars button")];
const faults = [...document.querySelectorAll("button.fault")];
const panel = document.getElementById("panel");
let bin = null;
let fault = null;

function filter() {
  const wanted = find.value.toLowerCase().split(" ").filter(Boolean);
  let count = 0;
  for (const row of rows) {
    const name = row.cells[0].textContent.toLowerCase();
    row.hidden =
      (bin !== null && row.dataset.bin !== bin) ||
      (fault !== null && !row.dataset.faults.split(" ").includes(fault)) ||
      !wanted.every((word) => name.includes(word));
    count += !row.hidden;
  }
  for (const bar of bars) bar.setAttribute("aria-pressed", String(bar.dataset.bin === bin));
  for (const each of faults) each.setAttribute("aria-pressed", String(each.dataset.fault === fault));
  const isAll = bin === null && fault === null && !wanted.length;
  const which = faults.find((each) => each.dataset.fault === fault);
  const mistake = which ? `: ${which.dataset.number} ${which.querySelector("span").textContent}` : "";
  const words = `${count} of ${rows.length}${mistake}`;
  document.getElementById("shown").textContent = isAll ? "" : words;
  document.getElementById("hint").hidden = !isAll;
  all.hidden = isAll;
}

for (const bar of bars) {
  bar.addEventListener("click", () => {
    bin = bin === bar.dataset.bin ? null : bar.dataset.bin;
    filter();
  });
}

for (const each of faults) {
  each.addEventListener("click", () => {
    fault = fault === each.dataset.fault ? null : each.dataset.fault;
    filter();
    if (fault !== null) table.scrollIntoView({ block: "nearest" });
  });
}

all.addEventListener("click", () => {
  [bin, fault, find.value] = [null, null, ""];
  filter();
});

function compare(first, second) {
  const [a, b] = [Number.parseFloat(first), Number.parseFloat(second)];
  const numbers = first.trim() !== "" && second.trim() !== "" && !/[^\d.+-]/.test(first + second);
  if (numbers && !Number.isNaN(a - b)) return a - b;
  return first.localeCompare(second);
}

for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
  if (!head.textContent) continue;
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.title = "Sort by this";
  button.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const sign = down ? -1 : 1;
    const text = (row) => row.cells[column].textContent.trim();
    rows.sort((first, second) => sign * compare(text(first), text(second)));
    body.append(...rows);
  });
}

// Beside the list where there is room; a narrow window goes to the student's page, and back.
const open = (event) => {
  const link = event.target.closest("a") ?? event.target.closest("tbody tr")?.querySelector("a");
  if (
    !link ||
    link.getAttribute("href").startsWith("#") ||
    event.ctrlKey ||
    event.metaKey ||
    event.shiftKey ||
    panel.offsetParent === null
  )
    return;
  event.preventDefault();
  panel.querySelector("iframe").src = link.href;
  panel.classList.add("open");
  for (const row of rows) row.removeAttribute("aria-current");
  const student = (each) => each.href.split("#")[0];
  const row = rows.find((each) => student(each.querySelector("a")) === student(link));
  row.setAttribute("aria-current", "true");
};
table.addEventListener("click", open);
document.querySelector("header").addEventListener("click", open);
panel.addEventListener("click", open);
document.getElementById("back").addEventListener("click", () => {
  panel.classList.remove("open");
  for (const row of rows) row.removeAttribute("aria-current");
});

find.addEventListener("input", filter);
filter();
