// The schedule explorer: pipeline schedules under each other, placed, edited and compared.

import { ARROW, DOTS, stripes } from "../figure/markup.js";
import { most } from "../figure/numbers.js";
import { choice, slider } from "../figure/sliders.js";
import { percent } from "../figure/units.js";
import { Editor } from "./editor.js";
import { proseOf } from "./operations.js";
import { hallPicture } from "./hall.js";
import { legendOf } from "./legend.js";
import { drawSchedule, layOut, longestOf } from "./picture.js";
import { comparedMarkup } from "./table.js";
import { areAsFormula, headline, litSentence, numbersOf, sentence, tableRows } from "./telling.js";

const LEFT = 52;
const RIGHT = 48;

/** Whether there are other numbers of stages or microbatches to choose. */
const hasSizes = ({ p, m }) => p.length * m.length > 1;

function slidersOf(data, forms, isFree) {
  const sliders = [];
  if (isFree && hasSizes(data)) {
    sliders.push(
      choice("p", "stages P", data.at[0], data.p),
      choice("m", "microbatches M", data.at[1], data.m),
      choice(
        "and",
        data.schedules.length > 1 ? "also show" : "compare with",
        "–",
        ["–", ...forms.map(proseOf)],
        (form) => (form === "–" ? "none" : form),
      ),
    );
  }
  if (isFree) {
    sliders.push(
      slider("tf", "forward", 1, 0.25, 4, String, 0.25),
      slider("tb", "backward", 2, 0.25, 6, String, 0.25),
      slider("tw", "of which W", 0.5, 0, 1, percent, 0.05),
      slider("tm", "a message takes", 0, 0, 2, (time) => (time ? `${time} forward` : "no time"), 0.25),
    );
  }
  const any = (limit) => limit || "any";
  const none = (microbatch) => (microbatch < 0 ? "none" : microbatch);
  sliders.push(
    slider("limit", "memory limit, microbatches", data.limit, 0, most([...data.m, data.limit]), any),
    slider("follow", "follow microbatch", -1, -1, most(data.m) - 1, none),
  );
  return sliders;
}

/** What all schedules of one picture share. */
function sceneOf(editor, shown, values, step, width) {
  const lit = editor.operationAt(shown, editor.over ?? editor.chosen);
  return {
    values,
    width,
    lit,
    left: LEFT,
    wide: width - LEFT - RIGHT,
    limit: values.limit,
    now: editor.moments(shown)[step] ?? Infinity,
    chosen: editor.chosen,
    critical: editor.critical,
    follow: editor.over && lit ? lit[2][1] : values.follow,
    longest: longestOf(shown),
    cursor: {},
  };
}

function draw(editor, values, step, width) {
  const shown = editor.shown(values);
  const scene = sceneOf(editor, shown, values, step, width);
  const { limit } = values;
  const all = shown.map((schedule, which) => layOut(schedule, which, scene));
  editor.seen = all;
  scene.top = most([1, limit, ...all.flatMap(({ peaks }) => peaks)]);
  const [legend, below] = legendOf(all, values, width);
  let y = below;
  let svg = ARROW + DOTS + stripes(0) + legend;
  const compared = [];
  const asFormula = areAsFormula(all);
  const said = [];
  const when = [];
  for (const laid of all) {
    const drawn = drawSchedule(laid, y, scene);
    svg += drawn.svg;
    y += drawn.height;
    compared.push(numbersOf(laid, drawn.over, { limit, first: shown[0], asFormula }));
    said.push(sentence(laid, drawn.over, limit));
    when.push(drawn.when);
  }
  const picked = editor.operationAt(shown, editor.chosen);
  if (picked ?? scene.lit) said.push(litSentence(picked ?? scene.lit, Boolean(picked), shown, when));
  return {
    ...(values.room && all.every(({ faults, isStuck }) => !faults.length && !isStuck)
      ? hallPicture(all, scene, stripes(0))
      : { svg, height: y }),
    numbers: [],
    compared: comparedMarkup(compared, width),
    title: headline(all),
    say: said.join(" "),
    without: editor.isEdited ? [] : ["undo"],
    isNews: Boolean(picked ?? scene.lit) || all.some(({ faults, edited }) => faults.length || edited),
    table: [["schedule", "stage", "order", "peak held"], ...all.flatMap(tableRows)],
    data: { faults: shown.flatMap(({ faults }) => faults).length, chosen: editor.chosen ?? "" },
  };
}

/** @returns {import("../figure/explorer.js").View} */
export function scheduleExplorer(data) {
  const isFree = data.schedules.some((schedule) => schedule.form || schedule.lists);
  const editor = new Editor(data);
  const lastMoment = (values) => editor.moments(editor.shown(values)).length;
  return {
    title: "Pipeline schedules",
    source: data.source,
    begin: 1e9,
    main: hasSizes(data) ? ["p", "m", "and", "tm"] : ["tf", "tb", "tm"],
    sliders: slidersOf(data, editor.forms, isFree),
    buttons: { path: "Critical path", ...(isFree && { undo: "Undo edits" }) },
    isNear: true, // its table sums up the rows above it
    hint: isFree ? "Drag a block to try another order." : "",
    keys: { c: "path", u: "undo", ",": "before", ".": "after", "<": "earlier", ">": "later" },
    help: `c: critical path; , . choose an operation. ${isFree ? "Drag it, or move it with < >; u undoes." : ""}`,
    acts: {
      path() {
        editor.critical = !editor.critical;
      },
      undo: () => editor.undo(),
      before: (values) => editor.choose(-1, values),
      after: (values) => editor.choose(1, values),
      earlier: (values) => editor.move(-1, values),
      later: (values) => editor.move(1, values),
    },
    hover: (spot) => editor.hover(spot),
    pick: (spot) => editor.pick(spot),
    grab: (spot, values) => editor.grab(spot, values),
    steps: lastMoment,
    stepName: (values, step) => (step === lastMoment(values) ? "end" : `moment ${step}`),
    draw: (values, step, width) => draw(editor, values, step, width),
  };
}
