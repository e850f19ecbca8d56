// Joins each module and style sheet of this folder with all that it imports into one file that asks for nothing.
// `labkit build` runs it. Writes to stdout, as JSON: { name: { text, sources } }.
//
// What explorers share stands in a file of its own, figure.js: there it is called `figure`, and what a page calls of
// the file that follows is called `labkit`.

import { readFileSync, readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { basename, dirname, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const folder = dirname(fileURLToPath(import.meta.url));
const SHARED = "figure";

/** What the modules of an explorer import from figure/; of what they do not, nothing is sent. */
function importedBy(name) {
  const [, own = ""] = /from "\.\/(\w+)\//.exec(readFileSync(resolve(folder, name), "utf8")) ?? [];
  const modules = readdirSync(resolve(folder, own)).filter((each) => each.endsWith(".js"));
  const texts = modules.map((each) => readFileSync(resolve(folder, own, each), "utf8"));
  const imports = texts.flatMap((text) => [...text.matchAll(/import \{([^}]*)\} from "\.\.\/figure\//g)]);
  return new Set(imports.flatMap(([, names]) => names.split(",").map((each) => each.trim())));
}

/** Modules of figure/ that an explorer imports are taken from `figure`. */
const shared = (entry) => ({
  name: "shared",
  setup(builder) {
    const taken = ({ path }) => ({ path: basename(path), namespace: SHARED, sideEffects: false });
    builder.onResolve({ filter: /^\.\.\/figure\// }, taken);
    builder.onLoad({ filter: /\.js$/, namespace: SHARED }, async ({ path }) => {
      const used = importedBy(entry);
      const names = Object.keys(await import(pathToFileURL(resolve(folder, SHARED, path))));
      return { contents: `export const { ${names.filter((each) => used.has(each)).join(", ")} } = ${SHARED};` };
    });
  },
});

/** What programs use of the visual language; the timeline few colours, for those of bars come with its runs. */
const USED = ["colours", "tints", "series", "dashes", "staleness", "motion_ms"];
const OF_TIMELINE = ["send", "path", "wrong"]; // as timeline/theme.js names them
const picked = (from, keys) => Object.fromEntries(keys.map((key) => [key, from[key]]));

const spoken = (entry) => ({
  name: "language",
  setup(builder) {
    builder.onLoad({ filter: /language\.json$/ }, async ({ path }) => {
      const language = JSON.parse(await readFile(path, "utf8"));
      const isTimeline = entry === "timeline.js";
      const used = isTimeline ? { colours: picked(language.colours, OF_TIMELINE) } : picked(language, USED);
      return { contents: JSON.stringify(used), loader: "json" };
    });
  },
});

/** A module as a script: what it exports are the properties of one global object. */
function asGlobal(text, global) {
  const at = text.lastIndexOf("export{");
  const exported = text.slice(at + "export{".length, text.lastIndexOf("}")).split(",");
  const properties = exported.map((each) => each.trim().split(" as ")).map(([own, name]) => `${name ?? own}:${own}`);
  return `var ${global}=(()=>{${text.slice(0, at)}return{\n${properties.join(",\n")}}})();\n`;
}

async function bundle(name) {
  const { outputFiles, metafile } = await build({
    entryPoints: [resolve(folder, name)],
    absWorkingDir: folder,
    bundle: true,
    minify: true,
    lineLimit: 4000,
    format: "esm",
    charset: "utf8",
    target: ["chrome111", "firefox113", "safari16.4"],
    legalComments: "none",
    metafile: true,
    write: false,
    plugins: [shared(name), spoken(name)],
  });
  const sources = Object.keys(metafile.inputs).map((path) => path.replace(`${SHARED}:`, `${SHARED}/`));
  const [{ text }] = outputFiles;
  const global = name === `${SHARED}.js` ? SHARED : "labkit";
  return [name, { text: name.endsWith(".js") ? asGlobal(text, global) : text, sources: sources.sort() }];
}

const entries = readdirSync(folder).filter((name) => /\.(js|css)$/.test(name));
process.stdout.write(JSON.stringify(Object.fromEntries(await Promise.all(entries.map(bundle)))));
