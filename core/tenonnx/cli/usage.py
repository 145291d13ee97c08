"""Help and errors of usage in plain words, whatever library parses the options."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer
from typer.core import TyperCommand

from tenonnx.errors import InvalidArgument

# Patterns of the parser's names of kinds of values, and the names in the help text.
VALUE_KINDS: Final = (
    (re.compile(r"<int( range)?>"), "N"),
    (re.compile(r"<float( range)?>"), "NUMBER"),
    (re.compile(r"<(str|path|file)>"), "TEXT"),
    (re.compile(r"<([^<>]+\|[^<>]+)>"), r"\1"),
)

RANGES: Final = (
    (re.compile(r"; x>=0(?=[;\]])"), ""),
    (re.compile(r"(\S+?)<=x<=([^\s;\]]+)"), r"\1 to \2"),
    (re.compile(r"x>=([^\s;\]]+)"), r"at least \1"),
    (re.compile(r"x<=([^\s;\]]+)"), r"at most \1"),
)

# By the validator's name for an error, what was expected.
PARSING: Final = {
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_parsing": "expected a number",
    "greater_than_equal": "expected at least {ge}",
    "less_than_equal": "expected at most {le}",
}


# The parser's sign, a line of its own, for a paragraph whose lines are kept.
AS_WRITTEN: Final = "\b"

# A word of a command line, or an option and its value; spaces between quotes are part of it.
USAGE_WORD: Final = re.compile(r"""(?:--?[\w-]+\s(?![-|<&]))?(?:'[^']*'|"[^"]*"|\S)+""")

# The first column of a row of two, and the space after it.
FIRST_COLUMN: Final = re.compile(r"\s*\S+\s{2,}(?=\S)")


class FittingHelp:
    """Help of a command in which no line is wider than the terminal."""

    help: str | None

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the text: sentences are wrapped, examples continued, rows of two columns hung."""
        del ctx
        if not self.help:
            return
        formatter.write_paragraph()
        with formatter.indentation():
            width = formatter.width - formatter.current_indent
            paragraphs = inspect.cleandoc(self.help).split("\n\n")
            formatter.write_text("\n\n".join(_fitting(each, width) for each in paragraphs))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage; an argument that must be given has no brackets."""
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [re.sub(r"^\{(.+)\}$", r"\1", piece) for piece in pieces]


def _fitting(paragraph: str, width: int) -> str:
    """Return a paragraph in which lines that are kept as written fit a width."""
    head, *lines = paragraph.split("\n")
    if head.strip() != AS_WRITTEN:
        return paragraph
    return "\n".join([head, *(part for line in lines for part in _broken(line, width))])


def _broken(line: str, width: int) -> Iterator[str]:
    """Yield the lines for one: a row goes on in its second column, a command after a backslash."""
    start, end = 0, ""
    words = [found.span() for found in USAGE_WORD.finditer(line)]
    if (row := FIRST_COLUMN.match(line)) is not None:
        indent = " " * row.end()
        words = [span for span in words if span[0] >= row.end()]
    else:
        indent, end = " " * (len(line) - len(line.lstrip()) + 4), " \\"
    shown = ""
    for at, (_, stop) in enumerate(words):
        part = shown + line[start:stop]
        last = at == len(words) - 1
        if at and len(part) + (0 if last else len(end)) > width and shown.strip():
            yield shown + end
            part = indent + line[start:stop].lstrip()
        shown, start = part, stop
    yield shown


class Command(FittingHelp, TyperCommand):
    """A subcommand whose help says ``N`` where the parser would say ``<int range>``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the subcommand.

        Raises:
            InvalidArgument: One is an option that stands before the subcommand.
        """
        _refuse_misplaced(ctx, self.get_params(ctx), args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options."""
        records: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                records[param.param_type_name].append(_plain(*record))
        for kind, found in records.items():
            if found:
                with formatter.section(f"{kind.capitalize()}s"):
                    formatter.write_dl(found)


def _refuse_misplaced(ctx: Any, own: Sequence[Any], args: Sequence[str]) -> None:
    """Refuse an option of the command that is given to the subcommand."""
    if ctx.parent is None:
        return
    known = {name for param in own for name in param.opts}
    common = {name: param for param in ctx.parent.command.params for name in param.opts}
    for at, word in enumerate(args):
        if word == "--":
            return
        name, equals, _ = word.partition("=")
        if name in common.keys() - known:
            param = common[name]
            alone = equals or param.is_flag or param.count
            end = at + (1 if alone else 2)
            moved, others = args[at:end], [*args[:at], *args[end:]]
            line = shlex.join(["tenonnx", *moved, ctx.info_name, *others])
            raise InvalidArgument(f"{name} stands before the subcommand", hint=line)


def _plain(names: str, text: str) -> tuple[str, str]:
    """Return an option's names and help in plain words."""
    if not names.startswith("-"):  # an argument's name says what it is
        names = names.partition(" <")[0]
    for kind, word in VALUE_KINDS:
        names = kind.sub(word, names)
    for form, words in RANGES:
        text = form.sub(words, text)
    return names, text


def plain_error(error: typer.BadParameter) -> InvalidArgument | None:
    """Return an error for a value that the parser refused; ``None`` where its own will do."""
    cause: Any = error.__cause__
    param: Any = error.param
    if param is None or not hasattr(cause, "errors"):
        return None
    found = cause.errors()[0]
    value, name = found.get("input"), max(param.opts, key=len)
    choices = _choices(param)
    if choices:
        expected = f"expected {', '.join(choices[:-1])} or {choices[-1]}"
    else:
        limits = found.get("ctx", {})
        expected = PARSING.get(found["type"], found["msg"]).format(**limits)
    path = error.ctx.command_path if error.ctx is not None else "tenonnx"
    return InvalidArgument(f"{name} {value}: {expected}", hint=f"`{path} --help` lists the options")


def _choices(param: Any) -> Sequence[str]:
    choices = getattr(getattr(param, "type_descriptor", None), "choices", None)
    return [str(getattr(choice, "value", choice)) for choice in choices or ()]
