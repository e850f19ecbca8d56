"""Wrong answers to autocast, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


KWARGS = "**{name: cast(value) for name, value in kwargs.items()}"
FLOAT = "isinstance(value, Tensor) and value.is_floating_point()"
changed("casts nothing", "products in float32", ("self.dtype if function in IN_16_BITS else", ""))
changed(
    "all in 16 bits",
    "sums in 16 bits",
    ("torch.float32 if function in IN_32_BITS else None", "self.dtype if function in IN_32_BITS else None"),
)
changed("named ones stay", "named arguments are left out", (KWARGS, "**kwargs"))
changed("every function", "everything is cast", ("else None\n", "else self.dtype\n"))
changed("labels too", "labels are cast", (FLOAT, "isinstance(value, Tensor)"))
changed(
    "the first argument only",
    "not every argument is cast",
    ("*map(cast, args)", "cast(args[0]), *args[1:]"),
)
changed("no return", "nothing returned", ("return function(*map", "function(*map"))
changed("detached", "no gradient", ("value.to(wanted)", "value.detach().to(wanted)"))
changed("kwargs as they are", "kwargs may be None", ("        kwargs = kwargs or {}\n", ""))
changed(
    "always bfloat16",
    "the other 16 bits",
    ("self.dtype if function in IN_16_BITS", "torch.bfloat16 if function in IN_16_BITS"),
)
WRONG.changed("sums in float64", "computed in float64", ("else torch.float32 if", "else torch.float64 if"))
WRONG.changed(
    "casts the result back",
    "products in float32",
    ("for name, value in kwargs.items()})", "for name, value in kwargs.items()}).float()"),
)
TO = "return value.to(wanted) if isinstance(value, Tensor) and value.is_floating_point() else value"
WRONG.changed(
    "casts in place",
    "arguments are changed",
    (TO, f"if {FLOAT}:\n                value.data = value.data.to(wanted)\n            return value"),
)
WRONG.changed("float32 alone", "sums in 16 bits", ("value.is_floating_point()", "value.dtype == torch.float32"))
WRONG.changed(
    "what has 16 bits stays", "the other 16 bits",
    (FLOAT, f"{FLOAT} and (wanted == torch.float32 or value.dtype == torch.float32)"),
)  # fmt: skip
WRONG.changed("parameters alone", "not every argument is cast", (FLOAT, f"{FLOAT} and value.requires_grad"))
WRONG.changed(
    "without a graph",
    "no gradient",
    ("return function(*map", "with torch.no_grad():\n            return function(*map"),
)
WRONG.changed(
    "the lists exchanged",
    "products in float32",
    ("self.dtype if function in IN_16_BITS else torch.float32 if function in IN_32_BITS",
     "torch.float32 if function in IN_16_BITS else self.dtype if function in IN_32_BITS"),
)  # fmt: skip
WRONG.changed(
    "sums cast back to 16 bits", "sums in 16 bits",
    ("return function(*map", "result = function(*map"),
    ("kwargs.items()})",
     "kwargs.items()})\n        return result.to(self.dtype) if function in IN_32_BITS else result"),
)  # fmt: skip
WRONG.changed(
    "matched by name", "found by its name",
    ("function in IN_16_BITS", "function.__name__ in [each.__name__ for each in IN_16_BITS]"),
    ("function in IN_32_BITS", "function.__name__ in [each.__name__ for each in IN_32_BITS]"),
)  # fmt: skip
WRONG.changed(
    "other functions get one 16-bit type", "everything is cast",
    ("            return function(*args, **kwargs)\n",
     "            given = [each.dtype for each in args if isinstance(each, Tensor) and each.is_floating_point()]\n"
     "            wanted = torch.float32 if torch.float32 in given else self.dtype\n"),
)  # fmt: skip
WRONG.right("doubles stay doubles", """
class Autocast(TorchFunctionMode):
    def __init__(self, dtype=torch.bfloat16):
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, function, types, args=(), kwargs=None):
        to = {**dict.fromkeys(IN_16_BITS, self.dtype), **dict.fromkeys(IN_32_BITS, torch.float32)}.get(function)
        floats = (torch.float32, torch.bfloat16, torch.float16)

        def cast(value):
            return value.to(to) if to and isinstance(value, Tensor) and value.dtype in floats else value

        return function(*[cast(each) for each in args], **{name: cast(each) for name, each in (kwargs or {}).items()})
""")  # fmt: skip
WRONG.changed("plain tensors alone", "not every argument is cast", (FLOAT, f"type(value) is Tensor and {FLOAT}"))
WRONG.changed(
    "only what it knows by heart",
    "not every argument is cast",
    ("function in IN_16_BITS", "function in (functional.linear, torch.matmul)"),
)
WRONG.changed(
    "keeps its copies", "a copy of old values",
    ("        self.dtype = dtype\n", "        self.dtype, self.copies = dtype, {}\n"),
    (TO, f"""if not ({FLOAT}):
                return value
            if (id(value), wanted) not in self.copies:
                self.copies[id(value), wanted] = (value, value.to(wanted))
            return self.copies[id(value), wanted][1]"""),
)  # fmt: skip
