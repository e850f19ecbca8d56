// Whether a page is dark.

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
  const wanted = getComputedStyle(document.documentElement).colorScheme;
  if (wanted === "dark" || wanted === "light") return wanted === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}
