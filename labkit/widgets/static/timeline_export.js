// What is shown, as files: PNG and SVG of the part in view, a page of its own, a Chrome trace of the run.

const escapeXml = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

/** Return the part in view as SVG: for each row the columns of equal shares as rectangles. */
export function toSvg(state) {
  const { layout, runs, theme, width } = state, columns = Math.round(width - LEFT - RIGHT), categories = runs[0].categories.length;
  const parts = [];
  const text = (x, y, words, anchor = "start") => parts.push(`<text x="${x}" y="${y}" text-anchor="${anchor}" fill="${theme.ink}">${escapeXml(words)}</text>`);
  for (const place of layout.rows) {
    const shares = shareMatrix(runs[place.run], place.row, ...windowOf(state, place.run), columns, categories, new Float64Array(columns * categories));
    if (place.first) text(4, place.y + 11, `rank ${place.row.rank}`);
    if (layout.bar >= 9) text(LEFT - 5, place.y + 11, LANES[place.row.lane], "end");
    const column = (x) => shares.subarray(x * categories, (x + 1) * categories).map((share) => Math.round(share * 1000) / 1000);
    for (let x = 0; x < columns; ) {
      const here = column(x);
      let next = x + 1;
      while (next < columns && column(next).every((share, c) => share === here[c])) next++;
      let bottom = place.y + place.bar;
      here.forEach((share, c) => {
        if (!share) return;
        bottom -= share * place.bar;
        const fill = state.hatched[c] ? `url(#hatch)` : theme.colours[c];
        parts.push(`<rect x="${LEFT + x}" y="${bottom.toFixed(2)}" width="${next - x}" height="${(share * place.bar).toFixed(2)}" fill="${fill}"/>`);
      });
      x = next;
    }
  }
  for (const head of layout.heads) text(4, head.y + 12, head.text);
  const [a, b] = state.view, step = tickStep(b - a, columns / 110);
  for (let tick = Math.ceil(a / step); tick * step <= b; tick++) {
    const x = xOf(state, tick * step).toFixed(1);
    parts.push(`<path d="M${x} ${TOP - 5}v${layout.height - TOP}" stroke="${theme.grid}"/>`);
    text(x, 12, timeText(tick * step), "middle");
  }
  const hatch = `<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="3" height="6" fill="${theme.colours[state.hatched.indexOf(true)]}"/></pattern>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${layout.height}" font-family="sans-serif" font-size="11"><title>${escapeXml(runs[0].summary)}</title><defs>${hatch}</defs><rect width="100%" height="100%" fill="${theme.paper}"/>${parts.join("")}</svg>`;
}

/** Return a Chrome trace, laid out as labkit/timeline/chrome.py does; spans that only overlap go to further threads. */
export function toChrome(run) {
  const events = [], threads = new Map();
  for (const { rank, lane, first, last } of run.rows) {
    const pid = 1000 + rank, open = [];
    events.push({ ph: "M", name: "process_name", pid, tid: 0, args: { name: `rank ${rank}` } }, { ph: "M", name: "process_sort_index", pid, tid: 0, args: { sort_index: rank } });
    for (let i = first; i < last; i++) {
      let at = 0;
      for (; ; at++) {
        const ends = (open[at] ??= []);
        while (ends.length && ends[ends.length - 1] <= run.start[i]) ends.pop();
        if (!ends.length || run.end[i] <= ends[ends.length - 1]) break;
      }
      open[at].push(run.end[i]);
      const tid = 10000 * pid + 1000 * lane + Math.min(at, 999), [name, kind, , peer, source] = run.labels[run.label[i]];
      threads.set(i, tid);
      events.push({ ph: "X", pid, tid, cat: LANES[lane], name: `${kind === "wait" ? "wait" : LANES[lane]}/${name}`, ts: run.start[i] / 1000, dur: Math.max(run.duration[i], 1) / 1000, args: { kind, bytes: run.bytes[i], ...(peer >= 0 && { peer }), ...(source && { source }) } });
    }
    open.forEach((_, at) => events.push({ ph: "M", name: "thread_name", pid, tid: 10000 * pid + 1000 * lane + at, args: { name: LANES[lane] + (at ? ` ${at + 1}` : "") } }));
  }
  const rankOf = (event) => run.rows.find(({ first, last }) => event >= first && event < last).rank;
  run.flow_from.forEach((from, id) => {
    const to = run.flow_to[id], common = { id, cat: "comm", name: "message" };
    events.push({ ph: "s", ...common, pid: 1000 + rankOf(from), tid: threads.get(from), ts: run.start[from] / 1000 });
    events.push({ ph: "f", bp: "e", ...common, pid: 1000 + rankOf(to), tid: threads.get(to), ts: Math.max(run.start[from], run.start[to]) / 1000 });
  });
  return JSON.stringify({ traceEvents: events, displayTimeUnit: "ns" });
}

/** Return bytes as text that a page can carry. */
export function toBase64(view) {
  const bytes = new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text);
}

/** Show what a page of its own carries (labkit/widgets/timeline_page.py): runs whose bytes are base64. */
export function showPage(root, runs) {
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const unpack = (part) => part && { ...part, columns: bytes(part.columns) };
  const code = document.querySelector("script[type=module]").textContent, style = document.querySelector("style").textContent;
  return new TimelineView(root, { runs: runs.map((run) => ({ ...unpack(run), path: unpack(run.path) })), source: code.replace(/\nshowPage\([^]*$/, ""), style });
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
  else save(new Blob([toChrome(this.state.runs[0])], { type: "application/json" }), "json");
};
