"""Make the types of `stompy.spark.building` from the tables: `python -m tests.documentation.spark_building`."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stompy.spark import options as kinds
from stompy.spark.options import Choice, Option, Parse
from stompy.spark.sink_options import SINK_TABLE
from stompy.spark.source_options import BATCH_TABLE, STREAM_TABLE

MODULE = Path(__file__).parent.parent.parent / "stompy" / "spark" / "building.pyi"
WIDTH = 120

TYPES: dict[Parse, str] = {
    kinds.text: "str",
    kinds.texts: "str | Sequence[str]",
    kinds.path: "str | PathLike[str]",
    kinds.count: "int",
    kinds.count_or_none: "int",
    kinds.number: "int",
    kinds.seconds: "float",
    kinds.size: "int | str",
    kinds.size_or_none: "int | str",
    kinds.flag: "bool",
    kinds.headers: "Mapping[str, str]",
    kinds.heartbeat: "tuple[float, float]",
}
"""What a user writes, by how its text is parsed."""


@dataclass(frozen=True)
class Builder:
    """A function to make.

    Attributes:
        name: of the function.
        table: its parameters.
        first: the docstring's first line.
        example: how it is used.
    """

    name: str
    table: Sequence[Option]
    first: str
    example: str


BUILDERS = (
    Builder(
        "options_for_stream",
        STREAM_TABLE,
        "Return options for `spark.readStream`.",
        'spark.readStream.format("stomp")'
        ".options(**options_for_stream(url=..., destination=..., spool_dir=...)).load()",
    ),
    Builder(
        "options_for_read",
        BATCH_TABLE,
        "Return options for `spark.read`, which takes messages out of a queue as a table.",
        'spark.read.format("stomp").options(**options_for_read(url=..., destination=..., spool_dir=...)).load()',
    ),
    Builder(
        "options_for_write",
        SINK_TABLE,
        "Return options for `df.write` and `df.writeStream`.",
        'df.write.format("stomp").mode("append").options(**options_for_write(url=..., destination=...)).save()',
    ),
)

HEAD = '''\
"""What type checkers and editors know of `building.py`.

Made from the tables of options: `python -m tests.documentation.spark_building`.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Literal

'''

NOTE = """\
Durations are seconds; sizes are bytes, or text such as `"8m"`. What is not given is left to its default. A
passcode is no option, since options travel and are printed: name its place.
"""


def module() -> str:
    """Return the whole module."""
    return HEAD + "\n".join(function(one) for one in BUILDERS)


def function(builder: Builder) -> str:
    """Return one function."""
    table = sorted(builder.table, key=lambda option: not option.required)
    lines = [f"def {builder.name}(", "    *,"]
    for option in table:
        kind = type_of(option) if option.required else f"{type_of(option)} | None = None"
        lines.append(f"    {option.field}: {kind},")
    lines += [
        ") -> dict[str, str]:",
        f'    """{builder.first}',
        "",
        "    For example::",
        "",
        f"        {builder.example}",
        "",
        textwrap.indent(NOTE, "    "),
        "    Args:",
    ]
    fields = {option.name: option.field for option in table}
    for option in table:
        lines.append(described(option, fields))
    lines += [
        "",
        "    Raises:",
        "        ConfigurationError: an option is unknown, missing or wrong; its value is not shown.",
        '    """',
    ]
    return "\n".join(lines) + "\n"


def type_of(option: Option) -> str:
    """Return the annotation of a parameter."""
    if isinstance(option.parse, Choice):
        return f"Literal[{', '.join(f'{chr(34)}{one}{chr(34)}' for one in option.parse.choices)}]"
    return TYPES[option.parse]


def described(option: Option, fields: dict[str, str]) -> str:
    """Return the lines on a parameter, in which other options have the names of parameters as well."""
    says = re.sub(r"\b[a-z]+(?:[A-Z][a-z]*)+\b", lambda found: fields.get(found[0], found[0]), option.description)
    says = says.replace(", as JSON", "")  # that is how Spark is given what is a mapping here
    default = "" if option.default in (None, "{}") or option.required else f" (default: {option.default})"
    text = f"{option.field}: {says}{default}."
    return textwrap.fill(
        text, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12, break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    MODULE.write_text(module(), encoding="utf-8")
    sys.stdout.write(f"{MODULE}\n")
