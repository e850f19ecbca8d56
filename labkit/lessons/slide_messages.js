// Messages of a run on a slide: when their bytes move, the steps that they make, and an arrow for one.

/** When a call began to move bytes, and when it had moved them. */
function movedIn(run, rank, event) {
  const rows = run.rows.filter((row) => row.rank === rank && event >= row.first && event < row.last);
  const moved = rows
    .flatMap((row) => slideBars.barsOf(run, row))
    .filter((bar) => bar[3] === event && bar[2] !== slideBars.STILL);
  return [moved[0]?.[0] ?? run.start[event], moved.at(-1)?.[1] ?? run.end[event]];
}

/** A run's messages: [from event, to event, from rank, to rank]. */
function messagesOf(run) {
  const rankOf = (event) => run.rows.find(({ first, last }) => event >= first && event < last)?.rank;
  const arrows = [];
  run.flow_from?.forEach((source, f) => arrows.push([source, run.flow_to[f], rankOf(source), rankOf(run.flow_to[f])]));
  return arrows;
}

/** The first of many steps that are a send and a receive each: when it is, how many there are, bytes of all calls. */
function stepOf(run, rank) {
  const row = run.rows.find((each) => each.rank === rank && each.lane === 1);
  if (!row) return null;
  const kindOf = (event) => run.labels[run.label[event]][1];
  const kinds = Array.from({ length: row.last - row.first }, (_, k) => kindOf(row.first + k));
  const first = kinds.findIndex((kind) => /send|recv/.test(kind));
  const calls = kinds.slice(first);
  const isStep = (kind, k) => k % 2 || /^i?recv\+i?send$/.test([kind, calls[k + 1]].sort().join("+"));
  if (first < 0 || calls.length < 6 || !calls.every(isStep)) return null;
  const [begin, end] = [0, 2].map((k) => run.start[row.first + first + k]);
  const sizes = calls.map((_, k) => run.bytes[row.first + first + k]);
  return { begin, end, count: calls.length / 2, sizes };
}

/** A rank's calls of such steps if they send and receive at once: [begin, end, category, event], sends first. */
function bothWays(run, rank) {
  const step = stepOf(run, rank);
  const row = run.rows.find((each) => each.rank === rank && each.lane === 1);
  if (!step) return null;
  const calls = slideBars.eventsOf(run, row).filter(([begin]) => begin >= step.begin);
  const [one, other] = calls;
  if (other[0] >= one[1]) return null;
  const isSend = ([, , , event]) => /send/.test(run.labels[run.label[event]][1]);
  return [calls.filter(isSend), calls.filter((call) => !isSend(call))];
}

/** An arrow from one point to another. */
function drawArrow(drawing, [x1, y1], [x2, y2]) {
  const { theme } = drawing.state;
  const angle = Math.atan2(y2 - y1, x2 - x1);
  const sides = [2.6, -2.6].map((turn) => [x2 + 18 * Math.cos(angle + turn), y2 + 18 * Math.sin(angle + turn)]);
  const [a, b] = sides.map((side) => side.map((each) => each.toFixed(1)).join(" "));
  const d = `M${x1.toFixed(1)} ${y1.toFixed(1)}L${x2.toFixed(1)} ${y2.toFixed(1)}`;
  drawing.add(`<path d="${d}" stroke="${theme.paper}" stroke-width="8"/>`);
  drawing.add(`<path d="${d}" stroke="${theme.arrow}" stroke-width="3.5"/>`);
  drawing.add(`<path d="M${x2.toFixed(1)} ${y2.toFixed(1)}L${a}L${b}Z" fill="${theme.arrow}"/>`);
}

globalThis.slideMessages = { bothWays, drawArrow, messagesOf, movedIn, stepOf };
