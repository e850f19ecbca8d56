// The pointer in an explorer's picture: what it is over is told beside it, and it chooses by a click or drags.

const DRAGGED = 4; // pixels of which a hand is not sure
const BESIDE = 14; // pixels between the pointer and what it is told

/**
 * @typedef {object} Spot
 * @property {Element} mark What the pointer is over.
 * @property {number} x In the picture's pixels.
 * @property {number} y
 */

/** @returns {Spot} */
function spotOf({ stage }, { clientX, clientY }) {
  const svg = stage.firstElementChild;
  const { left, top, width } = svg.getBoundingClientRect();
  const scale = svg.viewBox.baseVal.width / width || 1;
  const mark = document.elementFromPoint(clientX, clientY) ?? stage;
  return { mark, x: (clientX - left) * scale, y: (clientY - top) * scale };
}

/** Say beside the pointer what lies under it. */
function tell(explorer, { clientX, clientY }) {
  const tip = explorer.part("tip");
  const mark = document.elementFromPoint(clientX, clientY)?.closest("[data-tip]");
  tip.hidden = !mark;
  if (!mark) return;
  tip.textContent = mark.dataset.tip;
  const { left, top, width } = tip.offsetParent.getBoundingClientRect();
  const room = width - tip.offsetWidth;
  tip.style.left = `${Math.max(Math.min(clientX - left + BESIDE, room), 0)}px`;
  tip.style.top = `${clientY - top + BESIDE}px`;
}

/** What is held: where it was taken, and what the view does while it is dragged. */
class Held {
  constructor(explorer, event) {
    const { view, values, step } = explorer;
    this.explorer = explorer;
    this.from = event.clientX;
    this.spot = spotOf(explorer, event);
    this.follow = view.grab?.(this.spot, values, step);
    this.isDragged = false;
  }

  get isSomething() {
    return Boolean(this.follow || (this.explorer.view.pick && this.spot.mark.closest("[data-pick]")));
  }

  move(event) {
    const { explorer } = this;
    this.isDragged ||= Math.abs(event.clientX - this.from) > DRAGGED;
    if (!this.follow || !this.isDragged) return;
    explorer.stop();
    explorer.go(this.follow(spotOf(explorer, event)) ?? explorer.step);
    explorer.showValues();
  }

  drop() {
    const { explorer } = this;
    const { view, values, step } = explorer;
    if (this.isDragged || !view.pick) return;
    explorer.stop();
    explorer.go(view.pick(this.spot, values, step) ?? step);
  }
}

export function listenToPointer(explorer) {
  const { stage, view } = explorer;
  let held;
  const hover = (spot) => {
    if (view.hover?.(spot, explorer.values)) explorer.paint();
  };
  stage.onpointerdown = (event) => {
    const found = new Held(explorer, event);
    if (!found.isSomething) return;
    held = found;
    stage.setPointerCapture(event.pointerId);
    explorer.part("tip").hidden = true;
  };
  stage.onpointermove = (event) => {
    if (held) {
      held.move(event);
      return;
    }
    hover(spotOf(explorer, event));
    tell(explorer, event);
  };
  stage.onpointercancel = () => {
    held = undefined;
  };
  stage.onpointerup = () => {
    held?.drop();
    held = undefined;
  };
  stage.onpointerleave = () => {
    explorer.part("tip").hidden = true;
    if (!held) hover({ mark: explorer.root });
  };
}
