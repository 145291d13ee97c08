from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import Cli

from models import FLOAT, model, node, value
from tenonnx_explain.boxes import MAX_BOXES, MIN_CHAINED_NODES, boxes_of, shapes
from tenonnx_explain.layers import BOX_GAP, BOX_HEIGHT, draw


@pytest.fixture
def gelu(folder: Path) -> str:
    """A GELU written out, and one whose constant is wrong."""
    constants = {"r": np.float32(2**0.5), "o": np.float32(1), "h": np.float32(0.5)}
    nodes = [
        node("Div", "x r", "d"),
        node("Erf", "d", "e"),
        node("Add", "e o", "a"),
        node("Mul", "x a", "m"),
        node("Mul", "m h", "g", name="</script><b>'"),
        node("Div", "g w", "d2"),
        node("Erf", "d2", "e2"),
        node("Add", "e2 o", "a2"),
        node("Mul", "g a2", "m2"),
        node("Mul", "m2 h", "y"),
    ]
    proto = model(
        nodes, [value("x", FLOAT, ["n"])], [value("y")], constants | {"w": np.float32(1.5)}
    )
    onnx.save(proto, folder / "gelu.onnx")
    return "gelu.onnx"


def test_what_transforms_did(cli: Cli, gelu: str) -> None:
    report = json.loads(cli("explain", gelu, "--json", "--nodes").stdout)
    (change,) = [change for change in report["transforms"] if change["name"] == "gelu"]
    assert change["modified"]
    assert change["operators"] == {
        "Mul": [4, 2], "Add": [2, 1], "Div": [2, 1], "Erf": [2, 1], "Gelu": [0, 1]
    }  # fmt: skip
    assert len(change["removed"]) == 5
    assert change["added"] == ["g = Gelu<approximate=none>(x)"]
    assert change["notes"] == ["matched 1 Gelu"]
    (near,) = change["nearly"]
    assert near.startswith("nearly Gelu at Mul 'y'")
    assert "'w' is 1.5, not 1.414214" in near
    assert (report["nodes_before"], report["nodes_after"]) == (10, 6)
    made = {row["operator"]: row["made_by"] for row in report["nodes"]}
    assert (made["Gelu"], made["Erf"]) == ("gelu", "")


def test_text(cli: Cli, gelu: str) -> None:
    result = cli("explain", gelu, "--transform", "gelu", "--nodes")
    assert result.exit_code == 0, result.output
    for line in (
        "gelu.onnx: 10 nodes before transforms, 6 after",
        "10 → 6  Mul 4 → 2, Add 2 → 1",
        "gelu: nearly Gelu at Mul 'y'",
        "- d = Div(x, r)",
        "+ g = Gelu<approximate=none>(x)",
        "every node runs on the provider of first choice",
    ):
        assert line in result.stdout
    assert "lift-constants" not in result.stdout
    assert "What gelu changed" not in cli("explain", gelu).stdout


def test_what_is_nearly_one_call(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setenv("TENONNX_JIT", "1")
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("Add", "a b", "y")]
    matrix = {"w": np.ones((4, 4), np.float32)}
    onnx.save(model(nodes, [value("x", FLOAT, ["n", 4])], [value("y")], matrix), folder / "m.onnx")
    note = (
        "nearly MatMul with its activation at MatMul 'a' (ai.onnx, opset 21): Relu 'b': 'a' is read"
    )
    assert note in cli("explain", "m.onnx").stdout
    cli("explain", "m.onnx", "--html", "out.html")
    assert "nearly MatMul with its activation" in Path("out.html").read_text()


def test_a_transform_that_did_not_run(cli: Cli, gelu: str) -> None:
    result = cli("explain", gelu, "--transform", "gelo")
    assert result.exit_code == 2
    assert "did you mean 'gelu'" in result.stderr
    left_out = cli("explain", gelu, "--disable-transform", "gelu", "--transform", "gelu")
    assert left_out.exit_code == 2


def test_who_runs_what_and_why(cli: Cli, adder: str, double: str) -> None:
    options = ("--plugin", double, "explain", adder, "--level", "none", "-p", "slow", "-p", "cpu")
    report = json.loads(cli(*options, "--json", "--nodes").stdout)
    providers = {row["operator"]: row["provider"] for row in report["nodes"]}
    assert providers == {"Add": "SlowExecutionProvider", "Neg": "CPUExecutionProvider"}
    (neg,) = [row for row in report["nodes"] if row["operator"] == "Neg"]
    assert neg["reasons"] == {"SlowExecutionProvider": "adds only, and does not Neg"}
    assert "because SlowExecutionProvider: adds only" in cli(*options).stdout


class Page(HTMLParser):
    """Collects what a page has, and that every element ends."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.boxes: list[dict[str, str | None]] = []
        self.links: list[str] = []
        self.data = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)
        found = dict(attrs)
        if tag == "g":
            self.boxes.append(found)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag, attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"] and not self.data:
            self.data = data


def test_the_page_is_whole_and_needs_no_network(cli: Cli, gelu: str) -> None:
    assert cli("explain", gelu, "--html", "out.html").exit_code == 0
    text = Path("out.html").read_text()
    page = Page(text)
    assert page.open == []
    assert page.links == []
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", text)
    labels = [box["data-text"] for box in page.boxes]
    assert sorted(labels) == sorted(["x", "y", "Gelu", "Div", "Erf", "Add", "Mul", "Mul"])
    names = [row["name"] for row in json.loads(page.data)]
    assert "</script><b>'" in names
    refused = cli("explain", gelu, "--html", "no/such/folder/out.html")
    assert "cannot write no/such/folder/out.html" in refused.stderr


def test_colours_are_the_providers(cli: Cli, adder: str, double: str) -> None:
    cli(
        *("--plugin", double, "explain", adder, "--level", "none"),
        *("-p", "slow", "-p", "cpu", "--html", "out.html"),
    )
    text = Path("out.html").read_text()
    color = dict(
        re.findall(r'<text [^>]*>(Add|Neg)</text>|fill="(#\w+)"/>', text)
    )  # fmt: skip
    assert color.keys() >= {"Add", "Neg"}
    fills = re.findall(r'fill="(#\w+)"/><text [^>]*>(Add|Neg)<', text)
    assert len({fill for fill, _ in fills}) == 2


def rows(count: int, width: int) -> dict[str, Any]:
    """A report of as many nodes, in chains of a length that begin at one node."""
    nodes = [
        {"operator": "Relu", "provider": "cpu", "inputs": [], "outputs": [], "types": {},
         "after": [] if not n else [n - 1 if n % width else 0]}
        for n in range(count)
    ]  # fmt: skip
    return {"nodes": nodes, "inputs": {}, "outputs": {}}


def test_many_nodes_are_drawn_as_chains() -> None:
    assert (
        len(boxes_of(rows(MIN_CHAINED_NODES, width=MIN_CHAINED_NODES)).boxes) == MIN_CHAINED_NODES
    )
    (one,) = boxes_of(rows(MIN_CHAINED_NODES + 1, width=MIN_CHAINED_NODES + 1)).boxes
    assert one.label == f"Relu … Relu ({MIN_CHAINED_NODES + 1})"
    assert one.rows == list(range(MIN_CHAINED_NODES + 1))
    many = boxes_of(rows(5000, width=2))
    assert len(many.boxes) == MAX_BOXES
    assert sum(len(box.rows) for box in many.boxes) + many.left_out == 5000


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_drawings_lead_down_and_overlap_nowhere(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 25))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = {(a, b) for a, b in data.draw(st.sets(pairs, max_size=40)) if a < b}
    widths = data.draw(st.lists(st.floats(10, 90), min_size=count, max_size=count))
    drawing = draw(widths, edges)
    for a, b in edges:
        ys = [y for _, y in (drawing.places[a], *drawing.routes[a, b], drawing.places[b])]
        assert all(low < high for low, high in pairwise(ys))
    levels: dict[float, list[int]] = {}
    for box, (_, y) in enumerate(drawing.places):
        levels.setdefault(y, []).append(box)
    for boxes in levels.values():
        boxes.sort(key=lambda box: drawing.places[box][0])
        for one, other in pairwise(boxes):
            distance = drawing.places[other][0] - drawing.places[one][0]
            assert distance >= (widths[one] + widths[other]) / 2 + BOX_GAP - 1e-6
    for width, (x, y) in zip(widths, drawing.places, strict=True):
        assert width / 2 <= x <= drawing.width - width / 2
        assert BOX_HEIGHT / 2 <= y <= drawing.height - BOX_HEIGHT / 2


def test_an_edge_back_is_drawn() -> None:
    drawing = draw([50, 50], [(0, 1), (1, 0)])
    assert drawing.routes.keys() == {(0, 1), (1, 0)}


def test_shapes_stand_on_edges(cli: Cli, mlp: str) -> None:
    assert cli("explain", mlp, "--level", "none", "--html", "out.html").exit_code == 0
    text = Path("out.html").read_text()
    assert re.findall(r'class="shape"[^>]*>([^<]*)<', text).count("batch×16") == 1
    assert "<title>float[batch, 5]</title>" in text
    assert "None" not in text
    report = json.loads(cli("explain", mlp, "--level", "none", "--nodes", "--json").stdout)
    assert report["inputs"] == {"x": "float[batch, 16]"}
    assert report["outputs"] == {"y": "float[batch, 5]", "best": "int64[batch]"}
    assert report["nodes"][0]["types"] == {"a": "float[batch, 8]"}


def test_shapes_are_said_shortly() -> None:
    assert shapes(["float[a, ?, 3]", "int64[]", "?", "float[a, ?, 3]"]) == "a×?×3, scalar"
    assert shapes(["float", "?"]) == ""
