"""How the JavaScript of ``labkit/widgets/static`` reaches a page: joined, without comments and whitespace, deflated.

The files are plain ES modules that a person reads. A page gets them as text that it unpacks into one module. What
several views begin with is deflated first and is the same text in all; what follows is deflated as its continuation,
and says again nothing that it said. An error in the page gives functions by name.
"""

from __future__ import annotations

import base64
import hashlib
import re
import string
import zlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import rjsmin

# Of zlib's format the browsers of 2023 and later know how to undo it: Chrome 80, Firefox 113, Safari 16.4.
_LOADER = """\
const bytes = (text) => {
const all = new DataView(new ArrayBuffer(text.length + 4)), end = (text.length * 4) / 5 | 0;
for (let i = 0, at = 0, sum = 0; at < end; i++) {
const code = i < text.length ? text.charCodeAt(i) : 119;
sum = sum * 85 + (code === 120 ? 25 : code === 121 ? 57 : code - 35);
if (i % 5 === 4) { all.setUint32(at, sum); at += 4; sum = 0; }
}
return all.buffer.slice(0, end);
};
const unpack = (...parts) =>
new Response(new Blob(parts.map(bytes)).stream().pipeThrough(new DecompressionStream("deflate"))).text();
const load = async (end, ...parts) => {
const code = (await unpack(...parts)) + end;
const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
try { return await import(address); } finally { URL.revokeObjectURL(address); }
};"""

_OURS = bytes(range(35, 120)).replace(b"<", b"x").replace(b"\\", b"y")
_PYTHONS = string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~"
_DIGITS = bytes.maketrans(_PYTHONS.encode(), _OURS)


@cache
def javascript(name: str) -> str:
    """Return a module of ``labkit/widgets/static`` to be put after others in one script: no imports, no comments."""
    text = files("labkit.widgets").joinpath("static", name).read_text(encoding="utf-8")
    text = re.sub(r"^import .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^export (?=const|function|class)", "", text, flags=re.MULTILINE)
    shortest: str = rjsmin.jsmin(text)  # which takes a template within a template for code: there is none
    return shortest.strip()


@cache
def packed(names: tuple[str, ...], before: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return modules joined, deflated and written in base 85: five characters for four bytes, none that needs care.

    The digits are the characters from # to w, with x for < (a page's parser) and y for a backslash (a string's).

    Args:
        names: The modules.
        before: Modules that come before them, as a text of their own, the same whatever follows.
    """
    compress, parts = zlib.compressobj(9), []
    if before:
        parts.append(compress.compress(_joined(before)) + compress.flush(zlib.Z_SYNC_FLUSH))
    parts.append(compress.compress(_joined(names)) + compress.flush())
    return tuple(base64.b85encode(part).translate(_DIGITS).decode() for part in parts)


def program(names: tuple[str, ...], wanted: Sequence[str], called: str, before: tuple[str, ...] = ()) -> str:
    """Return a script for a page that knows the wanted functions; it is the text of an ES module.

    A page unpacks and compiles what it shows several times once: the module is kept under the hash of its text.

    Args:
        names: Files whose code becomes one module.
        wanted: Names that the module defines and the script goes on with.
        called: What an error in the page calls the module.
        before: Files that other pages' scripts also begin with, put before the others.
    """
    end = f"export {{ {', '.join(wanted)} }};\\n//# sourceURL=labkit/{called}"
    texts = ",\n".join(f'"{text}"' for text in packed(names, before))
    key = f"labkit {hashlib.sha256((end + texts).encode()).hexdigest()[:12]}"
    return f'{_LOADER}\nconst {{ {", ".join(wanted)} }} = await (globalThis["{key}"] ??= load("{end}",\n{texts}));'


def _joined(names: Sequence[str]) -> bytes:
    return "".join(f"{javascript(name)}\n" for name in names).encode()
