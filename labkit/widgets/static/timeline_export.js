// What is shown, as files: PNG and SVG of the part in view, a page of its own, a Chrome trace of the run.

const escapeXml = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

/** Return what `paint` takes for a canvas; it writes SVG. */
function svgPen() {
  const parts = [], near = (...numbers) => numbers.map((number) => +number.toFixed(2)).join(" ");
  const box = (x, y, wide, high) => `M${near(x, y)}h${near(wide)}v${near(high)}h${near(-wide)}z`;
  let path = "", dashes = "";
  const fill = (d, colour) => parts.push(`<path d="${d}" fill="${colour}"/>`);
  const stroke = (d, { strokeStyle, lineWidth = 1 }) => parts.push(`<path d="${d}" fill="none" stroke="${strokeStyle}" stroke-width="${lineWidth}" stroke-dasharray="${dashes}"/>`);
  return {
    parts, setTransform() {}, save() {}, measureText: (words) => ({ width: 6 * words.length }),
    clip: () => parts.push('<g clip-path="url(#clip)">'), restore: () => parts.push("</g>"),
    beginPath: () => (path = ""), moveTo: (...at) => (path += `M${near(...at)}`), lineTo: (...at) => (path += `L${near(...at)}`), rect: (...at) => (path += box(...at)),
    setLineDash: (lengths) => (dashes = lengths.join(" ")),
    fill() { fill(path, this.fillStyle); }, fillRect(...at) { fill(box(...at), this.fillStyle); },
    stroke() { stroke(path, this); }, strokeRect(...at) { stroke(box(...at), this); },
    fillText(words, x, y) {
      const anchor = { right: "end", center: "middle" }[this.textAlign] ?? "start";
      parts.push(`<text x="${near(x)}" y="${near(y)}" text-anchor="${anchor}" dominant-baseline="central" fill="${this.fillStyle}">${escapeXml(words)}</text>`);
    },
  };
}

/** Write for each row the columns of equal shares as rectangles. */
function shareRects(pen, state) {
  const { layout, runs, theme, width } = state, columns = Math.round(width - LEFT - RIGHT), categories = runs[0].categories.length;
  for (const place of layout.rows) {
    const shares = shareMatrix(runs[place.run], place.row, ...windowOf(state, place.run), columns, categories, new Float64Array(columns * categories));
    const column = (x) => shares.subarray(x * categories, (x + 1) * categories).map((share) => Math.round(share * 1000) / 1000);
    for (let x = 0; x < columns; ) {
      const here = column(x);
      let next = x + 1;
      while (next < columns && column(next).every((share, c) => share === here[c])) next++;
      let bottom = place.y + place.bar;
      here.forEach((share, c) => {
        if (!share) return;
        bottom -= share * place.bar;
        pen.fillStyle = state.hatched[c] ? "url(#hatch)" : theme.colours[c];
        pen.fillRect(LEFT + x, bottom, next - x, share * place.bar);
      });
      x = next;
    }
  }
}

/** Return the part in view as SVG, with all that the canvas shows. */
export function toSvg(state) {
  const { layout, theme, width } = state, pen = svgPen();
  paint(pen, { ...state, ratio: 1 }, shareRects);
  const hatch = `<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="3" height="6" fill="${theme.colours[state.hatched.indexOf(true)]}"/></pattern>`;
  const clip = `<clipPath id="clip"><path d="M${LEFT} 0H${width - RIGHT}V${layout.height}H${LEFT}z"/></clipPath>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${layout.height}" font-family="sans-serif" font-size="11"><title>${escapeXml(state.summary)}</title><defs>${hatch}${clip}</defs>${pen.parts.join("")}</svg>`;
}

/**
 * Return a Chrome trace, laid out as labkit/timeline/chrome.py does; spans that only overlap go to further threads. The
 * ranks of a second run are processes of their own, shifted as in the view.
 */
export function toChrome({ runs, offset }) {
  const events = [];
  runs.forEach((run, number) => {
    const threads = [], shift = Math.max(number ? offset : -offset, 0); // no time is negative
    const process = (rank) => 1000 + 100000 * number + rank, at = (time) => (time + shift) / 1000;
    const tell = (pid, tid, name, args) => events.push({ ph: "M", name, pid, tid, args });
    for (const { rank, lane, first, last } of run.rows) {
      const pid = process(rank), open = [], thread = (row) => 10000 * pid + 1000 * lane + Math.min(row, 999);
      tell(pid, 0, "process_name", { name: named(run, `rank ${rank}`) });
      tell(pid, 0, "process_sort_index", { sort_index: pid });
      for (let i = first; i < last; i++) {
        let row = 0;
        for (; ; row++) {
          const ends = (open[row] ??= []);
          while (ends.length && ends[ends.length - 1] <= run.start[i]) ends.pop();
          if (!ends.length || run.end[i] <= ends[ends.length - 1]) break;
        }
        open[row].push(run.end[i]);
        const [name, kind, , peer, source] = run.labels[run.label[i]];
        threads[i] = { pid, tid: thread(row) };
        events.push({ ph: "X", ...threads[i], cat: LANES[lane], name: `${kind === "wait" ? kind : LANES[lane]}/${name}`, ts: at(run.start[i]), dur: Math.max(run.duration[i], 1) / 1000, args: { kind, bytes: run.bytes[i], ...(peer >= 0 && { peer }), ...(source && { source }) } });
      }
      open.forEach((_, row) => tell(pid, thread(row), "thread_name", { name: LANES[lane] + (row ? ` ${row + 1}` : "") }));
    }
    for (const rank of run.memory)
      run[`memory_time_${rank}`].forEach((time, i) => events.push({ ph: "C", name: "memory (bytes)", pid: process(rank), tid: 0, ts: at(time), args: { held: run[`memory_held_${rank}`][i] } }));
    run.flow_from.forEach((from, id) => {
      const to = run.flow_to[id], message = { id: `${number} ${id}`, cat: "comm", name: "message" };
      events.push({ ph: "s", ...message, ...threads[from], ts: at(run.start[from]) });
      events.push({ ph: "f", bp: "e", ...message, ...threads[to], ts: at(Math.max(run.start[from], run.start[to])) });
    });
  });
  return JSON.stringify({ traceEvents: events, displayTimeUnit: "ns" });
}

/** Return bytes as text that a page can carry. */
export function toBase64(view) {
  const bytes = bytesOf(view);
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text);
}

/** Show what a page of its own carries (labkit/widgets/timeline_page.py): runs whose bytes are base64. */
export function showPage(root, runs) {
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const read = (part) => part && { ...part, columns: bytes(part.columns) };
  const code = document.querySelector("script[type=module]").textContent, style = document.querySelector("style").textContent;
  return new TimelineView(root, { runs: runs.map((run) => ({ ...read(run), path: read(run.path) })), source: code.replace(/\nshowPage\([^]*$/, ""), style });
}

/** Return a page that shows the runs anywhere, without a network and without a kernel. */
export function toPage(packed, { source, style }) {
  const pack = (part) => part && { ...part, columns: toBase64(part.columns) };
  const data = JSON.stringify(packed.map((run) => ({ ...pack(run), path: pack(run.path) }))).replace(/</g, "\\u003c");
  return `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>${escapeXml(packed[0].title)}</title><style>${style}</style><body><div id="timeline"></div><script type="module">${source.replace(/<\/script/g, "<\\/script")}\nshowPage(document.getElementById("timeline"), ${data});</` + `script></body></html>`;
}

TimelineView.prototype.export = function (kind) {
  const save = (blob, ending) => {
    const link = element("a", { download: `timeline.${ending}`, href: URL.createObjectURL(blob) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    this.say(`Saved timeline.${ending}.`);
  };
  if (kind === "PNG") this.canvas.toBlob((blob) => save(blob, "png"));
  else if (kind === "SVG") save(new Blob([toSvg(this.state)], { type: "image/svg+xml" }), "svg");
  else if (kind === "HTML") save(new Blob([toPage(this.packed, this.code)], { type: "text/html" }), "html");
  else save(new Blob([toChrome(this.state)], { type: "application/json" }), "json");
};
