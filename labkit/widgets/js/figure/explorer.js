// An explorer come to life: it stands at a step, its sliders have values, and it is painted anew when either changes.

import { FORMATS, frameMarkup, numbersMarkup, pictureMarkup, tableMarkup } from "./frame.js";
import { arrive, placesIn, travel } from "./motion.js";
import { followTheme } from "./theme.js";
import { drawing, pageOf, pixels } from "./saving.js";

/**
 * What an explorer shows. `draw` is a pure function: the same values, step and width give the same picture.
 *
 * @typedef {object} View
 * @property {string} title
 * @property {string} source Where its data comes from.
 * @property {import("./sliders.js").Slider[]} sliders
 * @property {string[]} [main] Keys of the sliders that are seen before "More" is opened; the first three.
 * @property {boolean} [isLed] Whether these and the player stand over the picture.
 * @property {boolean} [isNear] Whether its numbers stand between the picture and the controls.
 * @property {(values: object) => number} steps The last step.
 * @property {number} [begin] The step it opens at.
 * @property {string} [stepLabel]
 * @property {number} [told] How many numbers of a row are seen before "More" is opened; the first six.
 * @property {(values: object, step: number) => string} [stepName]
 * @property {(values: object, step: number, width: number) => Drawn} draw
 * @property {Record<string, string>} [buttons] Further buttons, as { act: words }.
 * @property {string} [hint] What can be done in the picture itself.
 * @property {Record<string, string>} [keys] Further keys, as { key: act }.
 * @property {Record<string, (values: object, step: number) => number | void>} [acts] What they do; the step to go to.
 * @property {string} [help] What is said of them.
 * @property {(spot: Spot, values: object, step: number) => number | void} [pick] Told of a click on a mark with
 *   data-pick; the step to go to.
 * @property {(spot: Spot, values: object, step: number) => undefined | ((spot: Spot) => number | void)} [grab] What a
 *   drag that begins there does, told where it has come to; it may change the values, and return the step to go to.
 * @property {(spot: Spot, values: object) => boolean} [hover] Told where the pointer is; whether that changes the
 *   picture.
 *
 * @typedef {import("./pointing.js").Spot} Spot
 *
 * @typedef {object} Drawn
 * @property {string} svg
 * @property {number} height
 * @property {Array<[label: string, value: *, bad?: *]>} numbers [] begins a row.
 * @property {string} [title] What it shows, in a few words that are computed; else the view's own.
 * @property {string} [compared] The markup of a table in place of `numbers`.
 * @property {string} say What is said aloud.
 * @property {boolean} [isNews] False: title and numbers say it too, so that it is said and not seen.
 * @property {string[]} [without] Acts of the view's buttons for which there is nothing to do.
 * @property {Array<Array>} table
 * @property {object} data For the root's data attributes.
 */

const STILL = "next step (reduced motion: nothing plays by itself)";

export class Explorer {
  /**
   * @param {HTMLElement} root
   * @param {View} view
   */
  constructor(root, view) {
    const now = JSON.parse(root.dataset.now ?? "{}");
    this.root = root;
    this.view = view;
    this.values = Object.fromEntries(view.sliders.map((slider) => [slider.key, slider.value]));
    Object.assign(this.values, now.values);
    this.values.room = root.closest(".reveal") !== null; // seen from the last row: the one picture that matters
    this.own = `lk${Math.random()}`;
    this.timer = 0;
    this.still = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)")?.matches ?? false;
    this.style = root.querySelector("style")?.outerHTML ?? "";
    followTheme(root);
    root.innerHTML = frameMarkup(view, this.values, this.style, root.tagName === "MAIN" ? "h1" : "b");
    this.heading = root.querySelector("header").firstChild;
    this.stage = this.part("stage");
    this.stepInput = this.part("player").querySelector("input");
    this.playButton = root.querySelector('[data-act="play"]');
    this.step = now.step ?? view.begin ?? 0;
    this.atEnd = this.step >= this.last; // and stays there when a slider or an edit makes more or fewer steps
    this.acts = this.allActs();
    this.stop();
    this.paint();
  }

  get last() {
    return this.view.steps(this.values);
  }

  part(name) {
    return this.root.querySelector(`[data-part="${name}"]`);
  }

  /** Draw where it stands, at most `most` pixels wide. */
  paint(most = Infinity) {
    this.step = this.atEnd ? this.last : Math.min(Math.max(this.step, 0), this.last);
    const width = Math.max(Math.min(this.stage.clientWidth || 760, most), 300);
    const drawn = this.view.draw(this.values, this.step, width);
    this.stage.innerHTML = pictureMarkup(drawn, width, this.own);
    [this.part("numbers").innerHTML, this.part("further").innerHTML] = numbersMarkup(drawn.numbers, this.view.told);
    if (drawn.compared) this.part("numbers").innerHTML = drawn.compared;
    this.part("table").innerHTML = tableMarkup(drawn.table);
    this.heading.textContent = drawn.title ?? this.view.title;
    this.say(drawn.say);
    this.part("say").classList.toggle("aside", drawn.isNews === false);
    this.showStep();
    for (const act of Object.keys(this.view.buttons ?? {})) {
      this.root.querySelector(`[data-act="${act}"]`).hidden = Boolean(drawn.without?.includes(act));
    }
    Object.assign(this.root.dataset, { step: this.step, ...drawn.data });
  }

  say(words) {
    const place = this.part("say");
    place.ariaLive = this.timer ? "off" : "polite"; // while it plays, nobody could listen that fast
    if (place.textContent !== words) place.textContent = words;
  }

  showStep() {
    const { stepInput, step, last } = this;
    const name = this.view.stepName?.(this.values, step) ?? `${step} of ${last}`;
    stepInput.max = last;
    stepInput.value = step;
    stepInput.ariaValueText = name;
    stepInput.nextElementSibling.textContent = name;
  }

  /** Stand at a step; what moves on the way from one step to the next is seen to move. */
  go(to = this.step) {
    const isNext = Math.abs(to - this.step) === 1 && !this.still;
    const isOn = to === this.step + 1;
    const before = isNext && placesIn(this.stage);
    if (to !== this.step) this.atEnd = to >= this.last;
    this.step = to;
    this.paint();
    if (isNext) travel(this.stage, before, this.pace);
    if (isNext && isOn) arrive(this.stage, this.pace);
  }

  /** Let every control stand where its value is. */
  showValues() {
    for (const slider of this.view.sliders) {
      const input = this.root.querySelector(`input[data-key="${slider.key}"]`);
      if (!input) continue;
      const value = this.values[slider.key];
      input.value = slider.options ? slider.options.indexOf(value) : value;
      input.ariaValueText = slider.show(value);
      input.nextElementSibling.textContent = slider.show(value);
    }
  }

  get pace() {
    return Number(this.part("more").querySelector("select").value);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = 0;
    this.showPlay("▶", this.still ? STILL : "play");
  }

  showPlay(icon, name) {
    this.playButton.textContent = icon;
    this.playButton.ariaLabel = name;
    this.playButton.title = name;
  }

  /** Go on by itself, from the begin if it stands at the end; one step on for readers who want less motion. */
  play() {
    if (this.timer) {
      this.stop();
      return;
    }
    this.go(this.step < this.last ? this.step + 1 : 0);
    if (this.still) return;
    this.showPlay("❚❚", "pause");
    const pace = 900 / this.pace;
    this.timer = setInterval(() => {
      if (this.step < this.last && this.root.isConnected) this.go(this.step + 1);
      else this.stop();
    }, pace);
  }

  allActs() {
    const acts = {
      first: () => this.go(0),
      back: () => this.go(this.step - 1),
      next: () => this.go(this.step + 1),
      last: () => this.go(this.last),
      play: () => this.play(),
      table: () => this.unfold("table"),
      help: () => this.unfold("help"),
    };
    for (const format of FORMATS) acts[format] = () => this.save(format);
    for (const [name, act] of Object.entries(this.view.acts ?? {})) {
      acts[name] = () => this.go(act(this.values, this.step));
    }
    return acts;
  }

  /** Do what a button or a key stands for. */
  run(act) {
    if (!this.acts[act]) return;
    if (act !== "play") this.stop();
    this.acts[act]();
  }

  /** Show a part, or hide it again. */
  unfold(name) {
    const part = this.part(name);
    part.hidden = !part.hidden;
    this.root.querySelector(`[data-act="${name}"]`).ariaExpanded = !part.hidden;
  }

  async save(format) {
    const { root, view, values, step, style } = this;
    const link = document.createElement("a");
    link.download = `${view.title}.${format}`;
    if (format === "html") {
      const page = pageOf(this.heading.textContent, root.dataset.figure, { values, step }, style);
      link.href = `data:text/html,${encodeURIComponent(page)}`;
    } else {
      const picture = drawing(this.stage.firstChild, `${view.title} · ${view.source}`);
      link.href = `data:image/svg+xml,${encodeURIComponent(picture)}`;
      if (format === "png") link.href = await pixels(link.href);
    }
    link.click();
    this.part("say").textContent = `Saved as ${link.download}.`;
  }
}
