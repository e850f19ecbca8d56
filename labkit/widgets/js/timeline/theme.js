// Light or dark, and the colours that go with it.

const COLOURS = ["paper", "band", "ink", "quiet", "grid", "arrow", "memory", "path", "alarm", "selection"];
const DARK = 110; // of 255

/** How bright a background is, or undefined where there is none. */
function brightnessOf(element) {
  const parts = getComputedStyle(element).backgroundColor.match(/[\d.]+/g) ?? [];
  const [r, g, b, alpha] = parts.map(Number);
  return b === undefined || alpha === 0 ? undefined : 0.3 * r + 0.6 * g + 0.1 * b;
}

/** Whether the page around the element is dark: as JupyterLab says, as its ground is, or as the system asks for. */
export function isDark(root) {
  const told = document.body.dataset.jpThemeLight;
  if (told) return told === "false";
  for (let at = root.parentElement; at; at = at.parentElement) {
    const brightness = brightnessOf(at);
    if (brightness !== undefined) return brightness < DARK;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Black or white, whichever stands out more. */
function inkOn(hex) {
  const [r, g, b] = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > DARK ? "#000000" : "#ffffff";
}

/** The colours of the style sheet in force, and those of the categories. */
export function themeOf(root, dark, categories) {
  const style = getComputedStyle(root);
  const colours = categories.map((category) => category[dark ? 2 : 1]);
  const own = COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]);
  return { ...Object.fromEntries(own), colours, onBar: colours.map(inkOn) };
}
