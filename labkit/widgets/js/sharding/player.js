// The sharding player: what every rank holds, moment by moment, under each stage of ZeRO.

import { rect, text } from "../figure/markup.js";
import { most, range } from "../figure/numbers.js";
import { choice } from "../figure/sliders.js";
import { bytes } from "../figure/units.js";
import { BLOCKS, heldBytes, holding, KINDS, MOMENTS, NONE, SHARD, STAGES, sentBytes } from "./holding.js";

const LEFT = 56;
const TOP = 62;
const ROW = 26;
const SHOWN = 8;

const momentName = (moment) => {
  const [what, block] = MOMENTS[moment];
  return block < 0 ? what : `${what}, block ${block}`;
};

/** A kind of number of a block on one rank: a hollow box, and in it what the rank holds. */
function box(x, y, width, held, fill, rank, ranks) {
  const frame = rect(x, y, width, ROW - 8, { class: "edge", fill: "none", opacity: 0.5 });
  if (held === NONE) return frame;
  if (held === SHARD) {
    return frame + rect(x + (width * rank) / ranks, y, most([width / ranks, 1.5]), ROW - 8, { fill });
  }
  return frame + rect(x, y, width, ROW - 8, { fill });
}

function rankRow(rank, { stage, n }, moment, blockWidth, unit) {
  const y = TOP + ROW * rank;
  const parts = range(BLOCKS).map((block) => {
    let x = LEFT + blockWidth * block;
    const kinds = holding(stage, moment, block).map((held, kind) => {
      const [, size, colour] = KINDS[kind];
      const drawn = box(x, y, unit * size - 2, held, colour, rank, n);
      x += unit * size;
      return drawn;
    });
    return kinds.join("");
  });
  return text(0, y + 13, `rank ${rank}`) + parts.join("");
}

function heading(moment, blockWidth, unit) {
  const keys = KINDS.map(([name, , colour], k) => {
    const x = LEFT + Math.min(130, (BLOCKS * blockWidth) / KINDS.length) * k;
    return rect(x, 8, 12, 12, { fill: colour }) + text(x + 17, 18, name);
  });
  const now = MOMENTS[moment][1];
  const names = range(BLOCKS).map((block) => {
    const x = LEFT + blockWidth * block;
    const mark = block === now ? rect(x, TOP - 8, 16 * unit - 2, 3, { fill: "currentColor" }) : "";
    return text(x, TOP - 14, block === now && blockWidth > 110 ? `block ${block} computes` : `block ${block}`) + mark;
  });
  return keys.join("") + names.join("");
}

function picture(values, moment, width) {
  const blockWidth = (width - LEFT) / BLOCKS;
  const unit = (blockWidth - 10) / 16;
  const rows = range(Math.min(values.n, SHOWN));
  const drawn = rows.map((rank) => rankRow(rank, values, moment, blockWidth, unit)).join("");
  const others = `and ${values.n - SHOWN} more ranks like these`;
  const more = values.n > SHOWN ? text(0, TOP + ROW * SHOWN + 12, others, "small grey") : "";
  return {
    svg: heading(moment, blockWidth, unit) + drawn + more,
    height: TOP + ROW * rows.length + (more ? 20 : 4),
  };
}

function tableOf({ stage }, moment) {
  const told = (block) => holding(stage, moment, block).map((each) => ["nothing", "a shard", "all"][each]);
  return [["block", ...KINDS.map(([name]) => name)], ...range(BLOCKS).map((block) => [block, ...told(block)])];
}

function atMoment({ stage, n, params }, moment, width) {
  const last = MOMENTS.length - 1;
  const held = heldBytes(stage, moment, n, params);
  const sent = sentBytes(stage, moment, n, params);
  const [whole, ddp] = [stage, 0].map((each) => sentBytes(each, last, n, params));
  return {
    ...picture({ stage, n }, moment, width),
    numbers: [
      ["held per rank", bytes(held)],
      ["peak in a step", bytes(most(range(last + 1).map((each) => heldBytes(stage, each, n, params))))],
      ["sent so far", bytes(sent)],
      ["sent per step", `${bytes(whole)} (${Number((whole / ddp).toFixed(2))} × DDP)`],
    ],
    title: claim(stage, held, heldBytes(0, moment, n, params)),
    say: `${STAGES[stage]}, ${momentName(moment)}: each of ${n} ranks holds ${bytes(held)}.`,
    table: tableOf({ stage }, moment),
    data: { held: Math.round(held), sent: Math.round(sent) },
  };
}

/** The moment in which a rank holds most. */
function fullest({ stage, n, params }) {
  const held = MOMENTS.map((_, moment) => heldBytes(stage, moment, n, params));
  return held.indexOf(most(held));
}

/** What a rank holds, and how much that is of what it holds where nothing is sharded. */
function claim(stage, held, whole) {
  if (held === whole) return `${STAGES[stage]}: every rank holds all ${bytes(held)}`;
  return `${STAGES[stage]}: a rank holds ${bytes(held)}, under DDP ${bytes(whole)}`;
}

/** @returns {import("../figure/explorer.js").View} */
export function shardingPlayer(data) {
  return {
    title: data.title,
    source: data.source,
    begin: fullest(data),
    sliders: [choice("stage", "stage", STAGES[data.stage], STAGES), choice("n", "ranks", data.n, data.sizes)],
    steps: () => MOMENTS.length - 1,
    stepName: (_values, moment) => momentName(moment),
    draw: ({ stage = STAGES[data.stage], ...given }, moment, width) =>
      atMoment({ ...data, ...given, stage: STAGES.indexOf(stage) }, moment, width),
  };
}
