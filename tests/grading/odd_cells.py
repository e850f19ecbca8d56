"""Cells that honest learners write beside an answer, as they would stand in a notebook, and how the answer uses them.

Each part begins with its name; the line below is what the answer's function begins with, then come the cells.
"""

from __future__ import annotations

_TEXT = """\
==== a hint that names what comes later
assert Node().next is None
--
class Node:
    next: 'Node | None' = None
==== a cached helper
assert fib(10) == 55
--
from functools import cache

@cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
==== a module of its own under try
assert mine(3) == 3
--
%%writefile fast.py
def mine(x):
    return x
--
try:
    from fast import mine
except ImportError:
    mine = None
==== slots
assert P(1).x == 1
--
class P:
    __slots__ = ('x',)
    def __init__(self, x):
        self.x = x
==== an enumeration
assert Kind.B.value == 2
--
from enum import Enum, auto

class Kind(Enum):
    A = auto(); B = auto()
==== a named tuple
assert Pair(1, 2).b == 2
--
from typing import NamedTuple
class Pair(NamedTuple):
    a: int
    b: int
==== a walrus in a cell
assert half == 2
--
if (half := 4 // 2) > 1:
    print(half)
==== a match in a helper
assert kind([1, 2]) == 'pair'
--
def kind(x):
    match x:
        case [_, _]:
            return 'pair'
        case _:
            return 'other'
==== an async helper
import asyncio; assert asyncio.run(later(3)) == 3
--
import asyncio

async def later(x):
    await asyncio.sleep(0)
    return x
==== a generator and a closure
assert list(upto(3)) == [0, 1, 2] and plus(1)(2) == 3
--
def upto(n):
    yield from range(n)

def plus(a):
    def add(b):
        return a + b
    return add
==== a decorator with arguments
assert thrice() == 3
--
import functools

def times(n):
    def wrap(f):
        @functools.wraps(f)
        def g(*a):
            return n * f(*a)
        return g
    return wrap
--
@times(3)
def thrice():
    return 1
==== a package of its own
from mine.parts import one; assert one() == 1
--
!mkdir -p mine
--
%%writefile mine/__init__.py
--
%%writefile mine/parts.py
def one():
    return 1
==== a module by the other magic
import tools; assert tools.K == 3
--
%%file tools.py
K = 3
==== a module in two parts
import tools; assert tools.K + tools.L == 7
--
%%writefile tools.py
K = 3
--
%%writefile -a tools.py
L = 4
==== a table in a file
import json; assert json.load(open('table.json'))['k'] == 3
--
%%writefile table.json
{"k": 3}
==== a variable of the environment
assert os.environ['PARTS'] == '4'
--
import os
--
os.environ['PARTS'] = '4'
==== a variable by magic
import os; assert os.getenv('PARTS') == '4'
--
%env PARTS=4
==== a file that is written and read
assert int(open('n.txt').read()) == 3
--
with open('n.txt', 'w') as file:
    file.write('3')
==== a helper that is decorated later
assert mine(3) == 3
--
import functools

def mine(x):
    return x
--
mine = functools.cache(mine)
==== a helper that is wrapped later
assert mine(3) == 6
--
def mine(x):
    return x
--
old = mine

def mine(x):
    return 2 * old(x)
==== a number made of itself
assert K == 6
--
K = 3
--
K = K * 2
==== a script that is run by name
NAMES = ['train.py', 'tools.py']
--
print('nothing')
==== a name that unicode makes one
assert µ == 2
--
μ = 2
==== several names at once
assert A + B + sum(REST) == 10
--
A, B, *REST = range(1, 5)
==== a name from with and for
assert last == 2 and text == 'x'
--
import io
with io.StringIO('x') as file:
    text = file.read()
for last in range(3):
    pass
==== a partial
assert inc(2) == 3
--
from functools import partial
import operator
inc = partial(operator.add, 1)
==== an object that is called
assert twice(2) == 4
--
class Times:
    def __init__(self, n):
        self.n = n
    def __call__(self, x):
        return self.n * x
--
twice = Times(2)
==== a property and a class method
assert Box.of(3).size == 3
--
class Box:
    def __init__(self, n):
        self._n = n
    @property
    def size(self):
        return self._n
    @classmethod
    def of(cls, n):
        return cls(n)
==== a class that is extended later
assert Part().both() == 3
--
class Part:
    def one(self):
        return 1
--
class Part(Part):
    def both(self):
        return self.one() + 2
==== a module of torch
assert Net()(torch.ones(2)).shape == (2,)
--
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        return x * 2
==== a logger
log.info('in the answer')
--
import logging
log = logging.getLogger(__name__)
log.setLevel(logging.INFO)
==== a helper that warns
warned()
--
import warnings

def warned():
    warnings.warn('slow', UserWarning, stacklevel=2)
==== a bar of progress
assert sum(tqdm(range(3), disable=None)) == 3
--
from tqdm.auto import tqdm
==== a bar for notebooks
assert sum(bar(range(3))) == 3
--
from tqdm.notebook import tqdm as bar
==== display in the answer
display('here'); clear_output(wait=True)
--
from IPython.display import clear_output, display, Markdown
==== a clock that is a decorator
assert slow() == 1
--
import time

def timed(f):
    def g(*a, **k):
        t = time.time()
        try:
            return f(*a, **k)
        finally:
            print(time.time() - t)
    return g
--
@timed
def slow():
    return 1
==== a pasted prompt
assert mine(3) == 3
--
>>> def mine(x):
...     return x
==== a pasted prompt of IPython
assert mine(3) == 3
--
In [3]: def mine(x):
   ...:     return x
==== a cell that is indented
assert mine(3) == 3
--
    def mine(x):
        return x
==== a table of lambdas
assert OPS['+'](1, 2) == 3
--
OPS = {'+': lambda a, b: a + b, '-': lambda a, b: a - b}
==== a context of its own
with quiet() as said: assert said == 1
--
from contextlib import contextmanager

@contextmanager
def quiet():
    yield 1
==== types of one's own
assert pick([3]) == 3
--
from typing import Sequence, TypeVar
T = TypeVar('T')
Numbers = Sequence[int]

def pick(x: 'Sequence[T]') -> 'T':
    return x[0]
==== a widget above
assert mine(3) == 3
--
try:
    from ipywidgets import interact
except ImportError:
    interact = lambda **k: (lambda f: f)
--
def mine(x):
    return x

@interact(n=(1, 5))
def shown(n=1):
    print(mine(n))
"""


def cells_beside() -> dict[str, tuple[str, ...]]:
    """Return by its name what the answer's first line says, and the cells above."""
    found = {}
    for part in _TEXT.split("==== ")[1:]:
        name, _, rest = part.partition("\n")
        use, *cells = rest.split("\n--\n")
        found[name] = (use.strip(), *(f"{cell}\n" for cell in cells))
    return found
