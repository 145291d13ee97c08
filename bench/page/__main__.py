"""``python -m bench all [AREA ...]`` measures every area and writes one page of them.

The page begins with the rows that are lost. Areas named alone are measured anew; what there are
results of is on the page all the same.
"""

from __future__ import annotations

import argparse
import sys

from bench.machine import tell
from bench.options import parser, telling_minutes
from bench.page import reasons
from bench.page.areas import AREAS
from bench.page.markdown import as_markdown, sections
from bench.picture import draw


def parse(arguments: list[str] | None) -> argparse.Namespace:
    about = {name: area.title for name, area in AREAS.items()}
    made = parser("all", __doc__, about, "AREA")
    made.add_argument("--quick", action="store_true", help="small models; numbers of no interest")
    made.add_argument("--from-results", action="store_true", help="measure nothing")
    return made.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if all that was measured is right, and all bounds hold, else 1."""
    parsed = parse(arguments)
    failed = 0
    with telling_minutes():
        for name in () if parsed.from_results else parsed.names or AREAS:
            if why := AREAS[name].missing(quick=parsed.quick):
                tell(f"{name}: {why}")
                continue
            tell(f"{name}: {AREAS[name].title}")
            failed |= AREAS[name].measure(str(parsed.output), quick=parsed.quick)
    found = list(sections(parsed.output, "-quick" if parsed.quick else ""))
    page = parsed.output / ("README-quick.md" if parsed.quick else "README.md")
    for section in found:
        draw(
            section.path.with_suffix(".png"),
            section.figures,
            section.area.title,
            section.area.beside,
        )
    page.write_text(as_markdown(found, reasons.read(), reasons.read_tried()), "utf-8")
    tell(f"written: {page}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
