// What a view watches: keys, pointer, its width, and light, dark and pixels of the page around it.

import { hearKey, isPlain } from "./keys.js";
import { listenToPointer } from "./pointer.js";

export class Watch {
  constructor(view) {
    this.view = view;
    this.gone = new AbortController();
    view.canvas.addEventListener("keydown", (event) => hearKey(view, event));
    // A plain key pressed in the widget is no shortcut of the notebook around it; Ctrl+S and Shift+Enter still are.
    view.root.addEventListener("keydown", (event) => isPlain(event) && event.stopPropagation());
    listenToPointer(view);
    this.watchWidth();
    this.watchTheme();
    this.watchPixels();
  }

  /** Draw at another size at once: paper waits for no frame. */
  resize() {
    this.view.resize();
    this.view.draw();
  }

  watchWidth() {
    const { view } = this;
    this.width = new ResizeObserver(() => {
      const width = Math.floor(view.plot.clientWidth);
      if (!width || width === view.state.width) return;
      this.resize();
    });
    this.width.observe(view.root);
  }

  watchTheme() {
    const { view } = this;
    const { signal } = this.gone;
    this.theme = new MutationObserver(() => view.retheme());
    this.theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view.retheme(), { signal });
  }

  /** Paint anew where the page comes to a screen with other pixels: the width in CSS pixels may stay. */
  watchPixels() {
    const { signal } = this.gone;
    const again = () => {
      this.resize();
      this.watchPixels();
    };
    const here = matchMedia(`(resolution: ${devicePixelRatio}dppx)`);
    here.addEventListener("change", again, { once: true, signal });
  }

  end() {
    this.width.disconnect();
    this.theme.disconnect();
    this.gone.abort();
  }
}
