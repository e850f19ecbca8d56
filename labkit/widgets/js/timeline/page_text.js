// A page of its own that shows runs anywhere, without a network and without a kernel.

import { toBase64 } from "./bytes.js";
import { escapeXml } from "./svg.js";

/** The program of a page, without the line after it that begins to show runs (labkit/widgets/timeline_page.py). */
export const withoutCall = (script) => script.replace(/\nlabkit\.showPage\([^]*$/, "");

export function toPage(packed, { source, style }) {
  const pack = (part) => part && { ...part, columns: toBase64(part.columns) };
  const runs = packed.map((run) => ({ ...pack(run), path: pack(run.path) }));
  const data = JSON.stringify(runs).replace(/</g, "\\u003c");
  const script = [source, `labkit.showPage(document.getElementById("timeline"), ${data});`].join("\n");
  return (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">' +
    `<title>${escapeXml(packed[0].title)}</title><style>${style}</style><body><main id="timeline"></main>` +
    `<script type="module">${script}</script></body></html>`
  );
}
