// Joins each module and style sheet of this folder with all that it imports into one file that asks for nothing.
// `labkit build` runs it. Writes to stdout, as JSON: { name: { text, sources } }.
//
// What explorers share stands in a file of its own, figure.js: there it is called `figure`, and what a page calls of
// the file that follows is called `labkit`.

import { readdirSync } from "node:fs";
import { basename, dirname, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const folder = dirname(fileURLToPath(import.meta.url));
const SHARED = "figure";

/** Modules of figure/ that an explorer imports are taken from `figure`. */
const shared = {
  name: "shared",
  setup(builder) {
    const taken = ({ path }) => ({ path: basename(path), namespace: SHARED, sideEffects: false });
    builder.onResolve({ filter: /^\.\.\/figure\// }, taken);
    builder.onLoad({ filter: /\.js$/, namespace: SHARED }, async ({ path }) => {
      const names = Object.keys(await import(pathToFileURL(resolve(folder, SHARED, path))));
      return { contents: `export const { ${names.join(", ")} } = ${SHARED};` };
    });
  },
};

async function bundle(name) {
  const { outputFiles, metafile } = await build({
    entryPoints: [resolve(folder, name)],
    absWorkingDir: folder,
    bundle: true,
    minify: true,
    lineLimit: 120,
    format: "iife",
    globalName: name === `${SHARED}.js` ? SHARED : "labkit",
    charset: "utf8",
    target: ["chrome111", "firefox113", "safari16.4"],
    legalComments: "none",
    metafile: true,
    write: false,
    plugins: [shared],
  });
  const sources = Object.keys(metafile.inputs).map((path) => path.replace(`${SHARED}:`, `${SHARED}/`));
  return [name, { text: outputFiles[0].text, sources: sources.sort() }];
}

const entries = readdirSync(folder).filter((name) => /\.(js|css)$/.test(name));
process.stdout.write(JSON.stringify(Object.fromEntries(await Promise.all(entries.map(bundle)))));
