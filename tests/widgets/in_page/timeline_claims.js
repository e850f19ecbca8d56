// Pure functions of the timeline.

import { causeOf } from "/js/timeline/cause.js";
import { toChrome } from "/js/timeline/chrome_trace.js";
import { decode } from "/js/timeline/columns.js";
import { hit, nextEdge, snap } from "/js/timeline/edges.js";
import { layOut, placeOf } from "/js/timeline/layout.js";
import { merge } from "/js/timeline/merge.js";
import { lateRanks, workingRank } from "/js/timeline/last_ranks.js";
import { numbers } from "/js/timeline/numbers.js";
import { categoryTimes, memoryColumns, shareMatrix } from "/js/timeline/shares.js";
import { roomForSteps, stepEdges } from "/js/timeline/steps.js";
import { stripOf, stripShares } from "/js/timeline/strips.js";
import { tilesOf } from "/js/timeline/tiles.js";
import { bytesText, percentText, tickStep, timeText, titleOf } from "/js/timeline/words.js";
import { assert, test } from "./claims.js";

const C = 3;

/** A run of rows [[rank, lane, [[start, end, category, bytes?]...]]...], as Python would pack it. */
function runOf(rows, more = {}) {
  const events = rows.flatMap(([, , spans]) => [...spans].sort((a, b) => a[0] - b[0] || b[1] - a[1]));
  const f8 = {
    start: events.map((e) => e[0]),
    duration: events.map((e) => e[1] - e[0]),
    bytes: events.map((e) => e[3] ?? 0),
  };
  Object.assign(f8, { collective_start: [], collective_duration: [], collective_bus_bytes: [] }, more.f8);
  const u4 = { label: events.map((e) => e[2]), flow_from: [], flow_to: [], ...more.u4 };
  const layout = {};
  const parts = [];
  let at = 0;
  for (const [type, columns] of [
    ["f8", f8],
    ["u4", u4],
  ]) {
    for (const [name, values] of Object.entries(columns)) {
      const bytes = new Uint8Array((type === "f8" ? Float64Array : Uint32Array).from(values).buffer);
      layout[name] = [type, at, values.length];
      parts.push(bytes);
      at += Math.ceil(bytes.length / 8) * 8;
    }
  }
  const columns = new Uint8Array(at + 3);
  for (const [i, name] of Object.keys(layout).entries()) columns.set(parts[i], 3 + layout[name][1]);
  return decode({
    columns: new DataView(columns.buffer, 3),
    layout,
    span: more.span ?? Math.max(1, ...events.map((e) => e[1])),
    name: more.name ?? "",
    says: "",
    summary: "a run",
    memory: [],
    clock: [],
    rows: rows.map(([rank, lane, spans]) => [rank, lane, spans.length]),
    categories: ["a", "b", "c"],
    title: more.title ?? "",
    in_time: more.inTime,
    labels: more.labels ?? [
      ["a", "span", 0, -1, "", ""],
      ["b", "isend", 1, 1, "", ""],
      ["c", "wait", 2, -1, "", ""],
      ["push", "rpc_sync", 1, 1, "", ""],
      ["push", "rpc_serve", 2, 1, "", ""],
    ],
  });
}

let seed = 7;
const draw = (n) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
const spans = (count, length) =>
  Array.from({ length: count }, () => {
    const at = draw(40);
    return [at, at + draw(length), draw(C)];
  });

/** The event that owns a tick: the last begun, of those that began together the shorter, then the later. */
function ownerOf(run, row, tick) {
  let best = -1;
  for (let i = row.first; i < row.last; i++) if (run.start[i] <= tick && tick < run.end[i]) best = i;
  return best;
}

test("every column holds the ticks of each category, whatever the window", () => {
  for (let round = 0; round < 400; round++) {
    const run = runOf([
      [0, 0, spans(draw(9), 1 + draw(15))],
      [1, 0, spans(draw(5), 6)],
    ]);
    const t0 = draw(20);
    const columns = 1 + draw(11);
    const ticks = 1 + draw(5);
    const t1 = t0 + columns * ticks;
    for (const row of run.rows) {
      const expected = new Float64Array(columns * C);
      for (let tick = t0; tick < t1; tick++) {
        const owner = ownerOf(run, row, tick);
        if (owner >= 0) expected[Math.floor((tick - t0) / ticks) * C + run.category[owner]] += 1 / ticks;
      }
      const shares = shareMatrix(run, row, t0, t1, columns, C, new Float64Array(columns * C));
      shares.forEach((share, i) => assert.ok(Math.abs(share - expected[i]) < 1e-9, `${share} for ${expected[i]}`));
    }
  }
});

test("numbers are the share matrix times its width, and unions are counted once", () => {
  for (let round = 0; round < 300; round++) {
    const run = runOf([
      [0, 0, spans(draw(7), 9)],
      [0, 1, spans(draw(7), 9)],
      [1, 1, spans(draw(4), 9)],
    ]);
    const t0 = draw(15);
    const t1 = t0 + 1 + draw(30);
    const found = numbers(run, t0, t1);
    let compute = 0;
    let communication = 0;
    let busy = 0;
    for (let tick = t0; tick < t1; tick++) {
      const on = run.rows.map((row) => ownerOf(run, row, tick) >= 0);
      compute += on[0];
      communication += on[1] + on[2];
      busy += (on[0] || on[1]) + on[2];
    }
    const close = (a, b) => assert.ok(Math.abs(a - b) < 1e-6, `${a} for ${b}`);
    close(found.compute, compute);
    close(found.communication, communication);
    close(found.busy, busy);
    close(found.exposed, busy - compute);
    close(found.busyShare, busy / (2 * (t1 - t0)));
    const columns = 13;
    const painted = run.rows.map(
      (row) =>
        shareMatrix(run, row, t0, t1, columns, C, new Float64Array(columns * C)).reduce((a, b) => a + b, 0) *
        ((t1 - t0) / columns),
    );
    close(painted[0], found.compute);
    close(painted[1] + painted[2], found.communication);
  }
});

test("time in each category is that of the events on top, all rows together", () => {
  for (let round = 0; round < 100; round++) {
    const run = runOf([
      [0, 0, spans(draw(7), 9)],
      [0, 1, spans(draw(7), 9)],
      [1, 2, spans(draw(4), 9)],
    ]);
    const t0 = draw(15);
    const t1 = t0 + 1 + draw(30);
    const expected = [0, 0, 0];
    for (const row of run.rows) {
      for (let tick = t0; tick < t1; tick++) {
        const owner = ownerOf(run, row, tick);
        if (owner >= 0) expected[run.category[owner]]++;
      }
    }
    [...categoryTimes(run, t0, t1)].forEach((time, c) =>
      assert.ok(Math.abs(time - expected[c]) < 1e-6, `${time} for ${expected[c]}`),
    );
  }
});

test("of a run in which nothing was recorded no share of time is told", () => {
  const { window, busyShare, bubble, computeShare, exposedShare, sent } = numbers(runOf([], { span: 0 }), 0, 1);
  assert.deepEqual([window, busyShare, bubble, computeShare, exposedShare, sent], [0, NaN, NaN, NaN, NaN, 0]);
  assert.equal(percentText(bubble), "–");
});

/** The numbers of ranks that each compute in [0, 40) and send in [30, 60), of a run that is `span` long. */
function sending(ranks, span) {
  const rows = Array.from({ length: ranks }, (_, rank) => [
    [rank, 0, [[0, 40, 0]]],
    [rank, 1, [[30, 60, 1, 1]]],
  ]);
  return { ...numbers(runOf(rows.flat(), { span }), 0, span), blocked: 17 * ranks, blockedShare: 17 / span };
}

test("a tile says whose mean it is: of one run a share of its time, of two the times", () => {
  const told = (runs, isZoomed = false) => tilesOf(runs, isZoomed);
  const long = sending(4, 100);
  assert.deepEqual(told([long]), [
    ["length", "100 ns"],
    ["waiting, each rank: 17 % of the time", "17 ns"],
    ["exposed communication, each rank: 20 % of the time", "20 ns"],
  ]);
  assert.deepEqual(told([long, sending(4, 80)]), [["length", "100 ns → 80 ns"]]); // the same in both is no reason
  const less = { ...sending(8, 80), blocked: 0, blockedShare: 0 };
  assert.deepEqual(told([long, less], true)[1], ["waiting in view, mean of 4 and 8 ranks", "17 ns → 0 ns"]);
  const alone = [{ ...long, waiting: [0, 1, 3], areNamed: true }, less]; // the one run in which ranks wait says which
  assert.deepEqual(told(alone)[1], ["waiting, each of ranks 0, 1, 3", "22.7 ns → 0 ns"]);
  const moving = (time, bytes = 0) => {
    const own = { rank: 0, communication: time, sent: bytes, received: bytes };
    return { busiest: 0, moves: [own] };
  };
  const narrow = (...of) => ({ ...sending(4, 80), ...moving(...of) });
  const busy = { ...long, ...moving(60) };
  assert.deepEqual(told([busy, narrow(45)]).slice(1), [["rank 0 communicates", "60 ns → 45 ns"]]);
  assert.deepEqual(told([narrow(45), busy])[1], ["rank 0 communicates", "45 ns → 60 ns"]);
  assert.deepEqual(told([{ ...busy, ...moving(60, 7e6) }, narrow(45, 2e6)]).slice(1), [
    ["rank 0 sends, and receives as much", "7 MB → 2 MB"],
    ["rank 0 communicates", "60 ns → 45 ns"],
  ]);
  const stepwise = { ...narrow(45, 2e6), latency: [3, "5 ns", 15] }; // why not as much faster as less is sent
  assert.deepEqual(tilesOf([{ ...busy, ...moving(60, 7e6) }, stepwise], false, ["root", "ring"]).slice(1), [
    ["rank 0 sends, and receives as much", "7 MB → 2 MB"],
    ["latency, once in each step: ring", "3 × 5 = 15 ns"],
  ]);
  const latencyOf = (latency) =>
    told([
      { ...busy, ...moving(60, 7e6) },
      { ...stepwise, latency },
    ]).at(-1)[0];
  for (const none of [undefined, [3, "2 ns", 6], [3, "5 ns", 17]]) assert.equal(latencyOf(none), "rank 0 communicates");
  const waits = { ...narrow(45), blocked: 0, blockedShare: 0 }; // the tile of one rank, and none of all
  assert.equal(told([busy, waits]).length, 2);
  assert.equal(told([busy, narrow(55)]).length, 1);
  assert.equal(told([sending(1, 100)])[1][0], "waiting: 17 % of the time");
  const some = { ...long, waiting: [0, 1, 3], areNamed: true }; // of those that wait, as the title says it
  assert.deepEqual(told([some])[1], ["waiting, each of ranks 0, 1, 3: 23 % of the time", "22.7 ns"]);
  const titled = { ...some, title: "The others wait 23 % of the time" }; // one number once, but of another part of it
  assert.equal(told([titled])[1][0], "waiting, each of ranks 0, 1, 3");
  assert.ok(told([titled], true)[1][0].endsWith(": 23 % of the time"));
  assert.equal(told([some]).length, 2); // exposed of all ranks would add up with it to what is no whole
  const waitsOf = (equal) => told([{ ...some, equal }])[1][1]; // 3 ranks share 68 ns
  assert.equal(waitsOf([2, "11.3 ns"]), "22.7 ns"); // 22.6 as shown is not that
  assert.equal(waitsOf([2, "11.35 ns"]), "2 × 11.35 = 22.7 ns");
  assert.equal(waitsOf([1, "22.7 ns"]), "22.7 ns"); // no product
  assert.equal(waitsOf([]), "22.7 ns");
  const asked = { ...some, areNamed: false };
  assert.equal(told([asked])[1][0], "waiting, mean of the 3 of 4 ranks that wait: 23 % of the time");
  const unlike = { ...some, areAlike: false, edges: [10, 54, 98] };
  assert.deepEqual(told([unlike])[0], ["length, mean of 2 steps", "44 ns a step"]);
  assert.deepEqual(told([unlike])[1], ["waiting, mean of ranks 0, 1, 3: 23 % of the time", "11.3 ns a step"]);
  const [[label, length]] = tilesOf([long, sending(4, 80)], false, ["H100", "A100"]);
  assert.deepEqual([label, length], ["length: H100 → A100", "100 ns → 80 ns"]);
});

test("of communication that takes next to no time no tile says that none of it is exposed", () => {
  const labels = (communication) => tilesOf([{ ...sending(4, 100), communication }], false).map(([label]) => label);
  assert.equal(labels(4 * 0.5).length, 3);
  assert.deepEqual(labels(4 * 0.4), ["length", "waiting, each rank: 17 % of the time"]);
});

test("a lane in which no rank is for half a percent of the time is thin, and the rank's name beside the next", () => {
  const rowsOf = (computed) => {
    const rows = [0, 1].flatMap((rank) => [
      [rank, 0, [[0, rank ? 0 : computed, 0]]],
      [rank, 1, [[100, 200, 1]]],
      [rank, 2, [[0, 900, 2]]],
    ]);
    const state = { runs: [runOf(rows, { span: 1000 })], tall: 1, memory: false, folded: true };
    return layOut(state).rows.map(({ row, bar, first }) => [row.rank, row.lane, bar, first]);
  };
  const others = [
    [1, 1, 16, true],
    [1, 2, 16, false],
  ];
  assert.deepEqual(rowsOf(4), [[0, 0, 3, false], [0, 1, 16, true], [0, 2, 16, false], [1, 0, 3, false], ...others]);
  const [first, second, , third] = rowsOf(5); // one rank computes for as long: the lane is that of all
  assert.deepEqual(
    [first, second, third],
    [
      [0, 0, 16, true],
      [0, 1, 16, false],
      [1, 0, 16, true],
    ],
  );
});

test("beside another run a lane of next to nothing is left out, where its rank has another", () => {
  const rows = [
    [0, 0, [[0, 1, 0]]],
    [0, 1, [[100, 900, 1]]],
    [1, 0, [[0, 1, 0]]],
    [2, 0, [[0, 900, 0]]],
  ];
  const run = () => runOf(rows, { span: 1000 });
  const state = { runs: [run(), run()], tall: 1, memory: false, folded: true, room: 640, width: 900 };
  const seen = layOut(state).rows.map(({ run: number, row, bar }) => [number, row.rank, row.lane, bar]);
  const each = (number) => [
    [number, 0, 1, 16],
    [number, 1, 0, 3],
    [number, 2, 0, 16],
  ];
  assert.deepEqual(seen, [...each(0), ...each(1)]);
});

test("steps are named where all ranks end them together", () => {
  const labels = [
    ["op", "op", 0, -1, "", ""],
    ["optimizer", "span", 0, -1, "", ""],
  ];
  const steps = (late) =>
    runOf(
      [0, 1].flatMap((rank) => [
        [rank, 0, [[0, 300, 0]]],
        [
          rank,
          3,
          [
            [90, 100 + rank * late, 1],
            [190, 200, 1],
            [290, 300, 1],
          ],
        ],
      ]),
      { labels },
    );
  assert.deepEqual(stepEdges(steps(0)), [90, 100, 200, 300]); // the first begins with the first region
  assert.deepEqual(numbers(steps(0), 0, 300).edges, [90, 100, 200, 300]);
  assert.equal(numbers(steps(0), 50, 300).edges, undefined); // of a part of the run no step is told
  const roomOf = (run) => roomForSteps({ runs: [run] });
  assert.ok(roomOf(steps(0)) > 0 && roomOf(steps(3)) > 0);
  assert.equal(roomOf(steps(9)), 0); // there a line would be wrong for one of the ranks
});

test("bytes are those of the calls that begin in the window", () => {
  const run = runOf([
    [
      0,
      1,
      [
        [0, 4, 1, 100],
        [4, 6, 1, 10],
        [9, 12, 1, 1],
      ],
    ],
  ]);
  assert.equal(numbers(run, 0, 12).sent, 111);
  assert.equal(numbers(run, 4, 9).sent, 10);
  assert.equal(numbers(run, 5, 9).messages, 0);
});

test("arguments of remote calls are bytes sent", () => {
  const run = runOf([
    [
      0,
      1,
      [
        [0, 4, 3, 100],
        [4, 6, 1, 10],
        [6, 7, 4, 5],
      ],
    ],
  ]);
  assert.deepEqual([numbers(run, 0, 7).sent, numbers(run, 0, 7).messages], [110, 2]);
});

test("bus bandwidth is bytes over time of the collectives that begin in the window", () => {
  const run = runOf([[0, 1, [[0, 30, 1, 1]]]], {
    f8: { collective_start: [2, 20], collective_duration: [4, 6], collective_bus_bytes: [40, 300] },
  });
  assert.equal(numbers(run, 0, 30).busbw, 34e9);
  assert.equal(numbers(run, 10, 30).busbw, 50e9);
  assert.ok(Number.isNaN(numbers(run, 3, 10).busbw));
});

test("what is hit is what is painted there; beside a thin one the nearest within reach", () => {
  for (let round = 0; round < 300; round++) {
    const run = runOf([[0, 0, spans(1 + draw(8), 12)]]);
    const [row] = run.rows;
    for (let tick = 0; tick < 55; tick++) assert.equal(hit(run, row, tick + 0.5), ownerOf(run, row, tick));
  }
  const run = runOf([
    [
      0,
      0,
      [
        [10, 11, 0],
        [20, 21, 0],
      ],
    ],
  ]);
  const [row] = run.rows;
  assert.equal(hit(run, row, 12, 0.5), -1);
  assert.equal(hit(run, row, 12, 2), 0);
  assert.equal(hit(run, row, 19, 20), 1);
});

test("a measured end snaps to the nearest edge of any event, and stays where none is near", () => {
  const run = runOf([
    [0, 0, [[10, 20, 0]]],
    [1, 0, [[24, 90, 0]]],
  ]);
  assert.equal(snap({ runs: [run], offset: 0 }, 21, 3), 20);
  assert.equal(snap({ runs: [run], offset: 0 }, 23, 3), 24);
  assert.equal(snap({ runs: [run], offset: 0 }, 50, 3), 50);
});

test("the cursor visits every edge once in either direction", () => {
  const run = runOf([
    [
      0,
      0,
      [
        [1, 5, 0],
        [5, 9, 0],
      ],
    ],
    [1, 0, [[3, 5, 0]]],
  ]);
  const walk = (time, direction) => {
    const seen = [];
    for (let next; (next = nextEdge({ runs: [run], offset: 0 }, time, direction)) !== time; time = next) {
      seen.push(next);
    }
    return seen;
  };
  assert.deepEqual(walk(0, 1), [1, 3, 5, 9]);
  assert.deepEqual(walk(10, -1), [9, 5, 3, 1]);
});

test("of two runs the cursor visits the edges of both, the second one's where its offset puts them", () => {
  const both = { runs: [runOf([[0, 0, [[1, 5, 0]]]]), runOf([[0, 0, [[0, 3, 0]]]])], offset: 4 };
  assert.deepEqual(
    [0, 1, 4, 5, 7].map((time) => nextEdge(both, time, 1)),
    [1, 4, 5, 7, 7],
  );
  assert.deepEqual(
    [8, 7, 5, 4.5].map((time) => nextEdge(both, time, -1)),
    [7, 5, 4, 4],
  );
  assert.deepEqual(
    [6.2, 6.9, 1, 4.4].map((time) => snap(both, time, 0.5)),
    [6.2, 7, 1, 4],
  );
});

test("memory shows the most of each column and what was there before", () => {
  const memory = { time: Float64Array.of(0, 20, 20, 60), held: Float64Array.of(100, 400, 0, 200) };
  assert.deepEqual([...memoryColumns(memory, 0, 100, 10)], [100, 100, 400, 0, 0, 0, 200, 200, 200, 200]);
  assert.deepEqual([...memoryColumns(memory, 30, 100, 7)], [0, 0, 0, 200, 200, 200, 200]);
});

test("ticks stand at 1, 2, 5 times a power of ten, never more than asked", () => {
  for (const length of [1, 3, 7.5, 999, 1e9]) {
    for (const most of [1, 4, 9]) {
      const step = tickStep(length, most);
      assert.ok(length / step <= most * (1 + 1e-9));
      assert.ok([1, 2, 5, 10].some((digit) => Math.abs(Math.log10(step / digit) % 1) < 1e-9));
    }
  }
});

test("sizes and times are in words", () => {
  assert.equal(timeText(12_300_000), "12.3 ms");
  assert.equal(timeText(999.6), "1 µs");
  assert.equal(timeText(0), "0 ns");
  assert.equal(bytesText(1_500_000), "1.5 MB");
  assert.equal(percentText(0.31415), "31.4 %");
});

test("in a Chrome trace the slices of a thread nest, and a message's arrow joins its two ends", () => {
  const run = runOf(
    [
      [
        0,
        1,
        [
          [0, 10, 0],
          [2, 4, 0],
          [3, 12, 1],
        ],
      ],
      [1, 1, [[5, 13, 1]]],
    ],
    { u4: { flow_from: [2], flow_to: [3] } },
  );
  const { traceEvents } = JSON.parse(toChrome({ runs: [run], offset: 0 }));
  const slices = traceEvents.filter((e) => e.ph === "X");
  assert.equal(slices.length, 4);
  for (const a of slices) {
    for (const b of slices) {
      const isWithin = a !== b && a.tid === b.tid && a.ts <= b.ts && b.ts < a.ts + a.dur;
      if (isWithin) assert.ok(b.ts + b.dur <= a.ts + a.dur + 1e-9);
    }
  }
  const [from, to] = ["s", "f"].map((phase) => traceEvents.find((e) => e.ph === phase));
  assert.deepEqual([from.id, from.pid, to.pid], [to.id, 1000, 1001]);
});

test("in a Chrome trace two runs are processes of their own, named and as far apart as in the view", () => {
  const rows = [
    [0, 1, [[0, 10, 1]]],
    [1, 1, [[5, 13, 1]]],
  ];
  const flow = { u4: { flow_from: [0], flow_to: [1] } };
  const runs = ["before", "after"].map((name) => runOf(rows, { ...flow, name }));
  for (const [offset, begins] of [
    [2000, [0, 2]],
    [-3000, [3, 0]],
  ]) {
    const { traceEvents } = JSON.parse(toChrome({ runs, offset }));
    const named = traceEvents.filter((e) => e.name === "process_name");
    assert.deepEqual(
      named.map((e) => e.args.name),
      ["before rank 0", "before rank 1", "after rank 0", "after rank 1"],
    );
    assert.equal(new Set(named.map((e) => e.pid)).size, 4);
    const slices = traceEvents.filter((e) => e.ph === "X");
    assert.deepEqual(
      slices.map((e) => e.pid),
      named.map((e) => e.pid),
    );
    assert.equal(new Set(slices.map((e) => e.tid)).size, 4);
    assert.deepEqual([slices[0].ts, slices[2].ts], begins);
    const arrows = traceEvents.filter((e) => e.ph === "s" || e.ph === "f");
    assert.deepEqual(
      arrows.map((e) => e.tid),
      slices.map((e) => e.tid),
    );
    assert.equal(new Set(arrows.map((e) => e.id)).size, 2);
  }
});

test("a run that grew part by part is the run that came at once", () => {
  for (let round = 0; round < 100; round++) {
    const rows = [
      [0, 0, spans(draw(9), 12)],
      [0, 1, spans(draw(5), 12)],
      [2, 1, spans(1 + draw(5), 12)],
    ];
    const byEnd = rows
      .flatMap(([rank, lane, all]) => all.map((span) => ({ rank, lane, span })))
      .sort((a, b) => a.span[1] - b.span[1]);
    let grown = runOf([]);
    for (let at = 0; at < byEnd.length; at += 3) {
      const part = new Map();
      for (const { rank, lane, span } of byEnd.slice(at, at + 3)) {
        part.set(`${rank} ${lane}`, [rank, lane, [...(part.get(`${rank} ${lane}`)?.[2] ?? []), span]]);
      }
      grown = merge(grown, runOf([...part.values()]));
    }
    const whole = runOf(rows.filter(([, , all]) => all.length));
    assert.deepEqual(
      grown.rows.map(({ rank, lane, first, last }) => [rank, lane, first, last]),
      whole.rows.map(({ rank, lane, first, last }) => [rank, lane, first, last]),
    );
    assert.deepEqual([...grown.start], [...whole.start]);
    assert.deepEqual([...grown.end], [...whole.end]);
    assert.equal(grown.span, whole.span);
  }
});

test("of two runs the title says how much faster the second is, or how much longer it takes", () => {
  const of = (name, span) => ({ name, title: name, span });
  const said = (a, b) => titleOf([of("naive", a), of("ring", b)]);
  assert.equal(said(797, 225), "Ring is 3.5 times faster than naive");
  assert.equal(said(100, 102), "Ring takes 1.02 times as long as naive");
  assert.equal(said(1000, 1001), "Ring takes as long as naive");
  const cause = ", mostly because ranks wait less";
  assert.equal(titleOf([of("naive", 100), of("ring", 50)], cause), `Ring is 2 times faster than naive${cause}`);
  assert.equal(titleOf([of("through rank 0", 50), of("ring", 50)]), "“ring” takes as long as “through rank 0”");
});

test("bytes that queue at one rank in the longer run alone are the cause", () => {
  const run = (...moving) => runOf(moving.map((long, rank) => [rank, 1, [[0, long, 1]]]));
  const [narrow, even] = [run(90, 20, 20, 20), run(30, 30, 30, 30)];
  assert.equal(causeOf(narrow, even), ", mostly because bytes no longer queue at rank 0");
  assert.equal(causeOf(even, narrow), ", mostly because bytes queue at rank 0");
  assert.equal(causeOf(narrow, run(60, 20, 20, 20)), ""); // at one rank in both
});

test("a headline that says who comes last marks them, and why where they compute longer", () => {
  assert.deepEqual(lateRanks({ title: "Ranks 4, 5 and 7 come last; the others wait" }), [4, 5, 7]);
  assert.deepEqual(lateRanks({ title: "Rank 2 comes last; rank 0 waits" }), [2]);
  assert.deepEqual(lateRanks({ title: "Rank 0 works; the others wait" }), []);
  const rows = [20, 20, 50].map((long, rank) => [rank, 0, [[0, long, 0]]]);
  const run = runOf(rows, { span: 60, title: "Rank 2 comes last; the others wait 50 % of the time for it" });
  const found = numbers(run, 0, 60);
  assert.deepEqual(found.late, { ranks: [2], compute: 50, others: 20, hidden: Number.NaN }); // nobody calls
  const [, [label, value]] = tilesOf([{ ...found, blocked: 60, blockedShare: 1 / 3, waiting: [0, 1] }], false);
  assert.deepEqual([label, value], ["rank 2: 50 ns, the others 20 ns", "computes 2.5 times as long"]);
  assert.equal(numbers(runOf(rows, { span: 60, title: "" }), 0, 60).late, undefined);
  const stepping = { ...found, blocked: 60, blockedShare: 1 / 3, waiting: [0, 1], edges: [0, 30, 60], inTime: 20 };
  assert.deepEqual(tilesOf([stepping], false), [
    ["length, mean of 2 steps", "30 ns a step"],
    ["rank 2: 25 ns a step, the others 10 ns a step", "computes 2.5 times as long"],
    ["waiting, each of ranks 0, 1: 50 % of a step", "15 ns a step"],
  ]);
  const asQuick = { ...stepping, late: { ...found.late, compute: 21 } }; // late for another reason
  assert.deepEqual(
    tilesOf([asQuick], false).map(([words]) => words.split(/[:,]/)[0]),
    ["length", "waiting"],
  );
  const shorter = { ...stepping, late: { ...found.late, compute: 45 } }; // 25 ns longer, and 30 are waited
  assert.equal(tilesOf([shorter], false)[1][0], "rank 2, compared with the others");
  const costsOf = (hidden, inTime, more = {}) => {
    const late = { ...found.late, hidden };
    return tilesOf([{ ...stepping, late, inTime, ...more }], false);
  };
  const sum = ["starting late + waiting, each step", "5 + 15 = 20 ns"]; // as the title says: what is shown adds up
  assert.deepEqual(costsOf(10, 10).at(-1), sum);
  const title = "Rank 2 comes last; it costs every step 20 of 30 ns (67 %)";
  assert.deepEqual(costsOf(10, 10, { title }).slice(1), [sum]); // what the title does not say
  for (const [hidden, inTime] of [
    [10.8, 10], // no sum
    [0, 15], // waiting is all of it
  ]) {
    assert.equal(costsOf(hidden, inTime).at(-1)[0], "waiting, each of ranks 0, 1: 50 % of a step");
  }
});

test("of a rank that works while the others wait tiles say how long it and they are busy", () => {
  assert.equal(workingRank({ title: "Rank 10 works; the others wait 59 % of the time" }), 10);
  assert.equal(workingRank({ title: "Rank 2 comes last; rank 0 waits" }), undefined);
  const rows = [
    [0, 0, [[0, 20, 0]]],
    [0, 1, [[20, 58, 1]]],
    [1, 1, [[0, 10, 1]]],
    [2, 1, [[40, 60, 1]]],
  ];
  const run = runOf(rows, { span: 60, title: "Rank 0 works; the others wait 59 % of the time" });
  const told = tilesOf([{ ...numbers(run, 0, 60), blocked: 60, blockedShare: 1 / 3, waiting: [1, 2] }], false);
  assert.deepEqual(told, [
    ["length", "60 ns"],
    ["computing or moving bytes, rank 0", "58 ns"],
    ["waiting (0 %), mean of the others; 15 ns busy, 45 ns idle", "0 ns"],
  ]);
});

test("where bytes go both ways at once, of two runs a row is two tracks, each nearly as high as a row", () => {
  const [SEND, RECEIVE] = [4, 7];
  const kinds = [
    ["barrier", 3],
    ["isend", SEND],
    ["irecv", RECEIVE],
  ];
  const labels = kinds.map(([kind, category]) => [kind, kind, category, -1, "", ""]);
  const run = (receives) =>
    runOf(
      [
        [
          0,
          1,
          [
            [0, 10, 0],
            [10, 20, 1],
            [receives, 40, 2],
          ],
        ],
        [
          1,
          1,
          [
            [0, 10, 0],
            [40, 50, 1],
          ],
        ],
      ],
      { labels },
    );
  const segments = ({ segmentStart, segmentEnd, segmentCategory }, { from, to }) =>
    Array.from({ length: to - from }, (_, k) => [segmentStart, segmentEnd, segmentCategory].map((of) => of[from + k]));
  const both = run(10);
  const [above, below] = both.rows[0].tracks.map((track) => segments(both, track));
  assert.deepEqual(above, [
    [0, 10, 3],
    [10, 40, RECEIVE],
  ]);
  assert.deepEqual(below, [
    [0, 10, 3],
    [10, 20, SEND],
  ]);
  assert.equal(both.rows[1].tracks ?? run(20).rows[0].tracks, undefined); // one after the other
  const state = { runs: [run(20), both], tall: 1, memory: false, folded: true, room: 640, width: 900 };
  const { rows, bars } = layOut(state);
  assert.deepEqual(
    rows.map(({ bar }) => bar),
    [16, 16, 28, 16],
  );
  assert.deepEqual(
    bars.map(({ bar }) => bar),
    [16, 16, 14, 14, 16],
  );
  const placed = [0, 1, 2].map((event) => placeOf({ ...state, layout: { rows, bars } }, 1, event).y - rows[2].y);
  assert.deepEqual(placed, [0, 0, 14]); // the barrier, what comes (it ends last), what goes
  assert.deepEqual(
    layOut({ ...state, runs: [both] }).bars.map(({ bar }) => bar),
    [16, 16],
  );
});

test("brackets that say no more than colours are left out until they are asked for", () => {
  const lanes = (name, isAsked) => {
    const labels = [
      ["op", "op", 0, -1, "", ""],
      [name, "span", 0, -1, "", ""],
    ];
    const rows = [
      [0, 0, [[0, 90, 0]]],
      [0, 3, [[0, 90, 1]]],
    ];
    const state = { runs: [runOf(rows, { labels })], tall: 1, memory: false, folded: true, spans: isAsked };
    return layOut(state).rows.map(({ row }) => row.lane);
  };
  assert.deepEqual(lanes("backward", false), [0]);
  assert.deepEqual(lanes("backward", true), [0, 3]);
  assert.deepEqual(lanes("block 1", false), [0, 3]);
});

test("the cause of a difference is more than half of it; of processes nobody knows when they compute", () => {
  const run = (computing, moving, isKnown = true) => {
    const rows = [0, 1].flatMap((rank) => [
      ...(isKnown ? [[rank, 0, [[0, computing, 0]]]] : []),
      [rank, 1, [[computing, computing + moving, 1]]],
    ]);
    return runOf(rows);
  };
  assert.equal(causeOf(run(40, 60), run(40, 10)), ", mostly because less communication is exposed");
  assert.equal(causeOf(run(40, 60), run(71, 90)), ", mostly because ranks compute longer");
  assert.equal(causeOf(run(40, 60), run(70, 90)), "");
  const begun = runOf([
    [0, 0, [[30, 65, 0]]],
    [0, 1, [[65, 80, 1]]],
  ]);
  const early = runOf([
    [0, 0, [[0, 15, 0]]],
    [0, 1, [[15, 50, 1]]],
  ]);
  assert.equal(causeOf(early, begun), ""); // it also begins later, and communicates less
  assert.equal(causeOf(run(40, 60, false), run(40, 10, false)), "");
});

test("a run in one row holds the share of its ranks that compute, and of their calls what that does not hide", () => {
  const run = runOf([
    [0, 0, [[0, 10, 0]]],
    [0, 1, [[5, 20, 1]]],
    [1, 0, [[10, 20, 0]]],
  ]);
  const shares = stripShares(run, stripOf(run), 0, 20, 4, C, new Float64Array(4 * C));
  assert.deepEqual([...shares], [0.5, 0, 0, 0.5, 0, 0, 0.5, 0.5, 0, 0.5, 0.5, 0]);
});
