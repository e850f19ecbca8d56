const table = document.getElementById("marks");
const body = table.tBodies[0];
const rows = [...body.rows];
const find = document.getElementById("find");

function search() {
  const wanted = find.value.toLowerCase().split(" ").filter(Boolean);
  let count = 0;
  for (const row of rows) {
    const name = row.cells[0].textContent.toLowerCase();
    row.hidden = !wanted.every((word) => name.includes(word));
    count += !row.hidden;
  }
  document.getElementById("shown").textContent = `${count} of ${rows.length}`;
}

function compare(first, second) {
  const [a, b] = [Number.parseFloat(first), Number.parseFloat(second)];
  const numbers = first.trim() !== "" && second.trim() !== "" && !/[^\d.+-]/.test(first + second);
  if (numbers && !Number.isNaN(a - b)) return a - b;
  return first.localeCompare(second);
}

for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const sign = down ? -1 : 1;
    const text = (row) => row.cells[column].textContent;
    rows.sort((first, second) => sign * compare(text(first), text(second)));
    body.append(...rows);
  });
}

find.addEventListener("input", search);
search();
