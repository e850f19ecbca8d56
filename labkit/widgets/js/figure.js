// What all explorers share; it is sent before each of them.

export * from "./figure/colours.js";
export * from "./figure/link.js";
export * from "./figure/markup.js";
export * from "./figure/numbers.js";
export * from "./figure/plot.js";
export * from "./figure/sliders.js";
export * from "./figure/start.js";
export * from "./figure/units.js";
