"""How the JavaScript of ``labkit/widgets/static`` reaches a page: joined, without comments, deflated.

The files are plain ES modules that a person reads. A page gets them as text it unpacks into one module, for whitespace
and names take next to no room when deflated: 115 KB become 51, base 85 and all. (Taking out whitespace leaves 101 KB, a
minifier that also renames leaves 77.) An error in the page gives functions by name and lines as a person wrote them.
"""

from __future__ import annotations

import base64
import re
import string
import zlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

# Of zlib's format the browsers of 2023 and later know how to undo it: Chrome 80, Firefox 113, Safari 16.4.
_LOADER = """\
const bytes = (text) => {
const all = new DataView(new ArrayBuffer(text.length + 4)), end = (text.length * 4) / 5 | 0;
for (let i = 0, at = 0, sum = 0; at < end; i++) {
const code = i < text.length ? text.charCodeAt(i) : 119;
sum = sum * 85 + (code === 120 ? 25 : code === 121 ? 57 : code - 35);
if (i % 5 === 4) { all.setUint32(at, sum); at += 4; sum = 0; }
}
return new Blob([all.buffer.slice(0, end)]);
};
const unpack = (text) => new Response(bytes(text).stream().pipeThrough(new DecompressionStream("deflate"))).text();
const load = async (end, ...parts) => {
const code = (await Promise.all(parts.map(unpack))).join("\\n") + end;
const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
try { return await import(address); } finally { URL.revokeObjectURL(address); }
};"""

_OURS = bytes(range(35, 120)).replace(b"<", b"x").replace(b"\\", b"y")
_PYTHONS = string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~"
_DIGITS = bytes.maketrans(_PYTHONS.encode(), _OURS)


@cache
def javascript(name: str) -> str:
    """Return a module of ``labkit/widgets/static`` to be put after others in one script: no imports, no indentation."""
    text = files("labkit.widgets").joinpath("static", name).read_text(encoding="utf-8")
    text = re.sub(r"^import .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^export (?=const|function|class)", "", text, flags=re.MULTILINE)
    text = re.sub(r"^ *(//|/\*\*).*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^[ \n]+", "", text, flags=re.MULTILINE).strip()


def joined(names: Sequence[str]) -> str:
    """Return modules as one script, in their order."""
    return "\n".join(map(javascript, names))


@cache
def packed(names: tuple[str, ...]) -> str:
    """Return modules joined, deflated and written in base 85: five characters for four bytes, none that needs care.

    The digits are the characters from # to w, with x for < (a page's parser) and y for a backslash (a string's).
    """
    return base64.b85encode(zlib.compress(joined(names).encode(), 9)).translate(_DIGITS).decode()


def program(parts: Sequence[tuple[str, ...]], wanted: Sequence[str], called: str) -> str:
    """Return a script for a page that knows the wanted functions; it is the text of an ES module.

    Args:
        parts: Files whose code becomes one module; files that other pages' scripts also begin with are a part of their
            own, which is then the same text in all.
        wanted: Names that the module defines and the script goes on with.
        called: What an error in the page calls the module.
    """
    end = f"\\nexport {{ {', '.join(wanted)} }};\\n//# sourceURL=labkit/{called}"
    texts = ",\n".join(f'"{packed(part)}"' for part in parts)
    return f'{_LOADER}\nconst {{ {", ".join(wanted)} }} = await load("{end}",\n{texts});'
