"""``FormatTests``: the contract of readers of model files."""

from __future__ import annotations

import contextlib
import gc
from pathlib import Path
from typing import ClassVar

import hypothesis
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import strategies as st

from tenonnx.errors import TenonnxError
from tenonnx.formats import HEADER_BYTES, Format
from tenonnx.options import SessionOptions
from tenonnx.plugins.manager import PluginSet, default_plugins
from tenonnx.session import InferenceSession
from tenonnx.testing.compare import assert_similar
from tenonnx.testing.models import mlp
from tenonnx.testing.one import plugins_and
from tenonnx.weights.registry import WeightRegistry

X = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)


class FormatTests:
    """The contract of a format: subclass it, name the format, and write a model in it.

    ::

        class TestGzip(FormatTests):
            format = "gzipped ONNX"

            @pytest.fixture
            def sample(self, tmp_path):
                path = tmp_path / "model.onnx.gz"
                path.write_bytes(gzip.compress(mlp().SerializeToString()))
                return path

    A format that has ``save`` needs no fixture: samples are written with it.

    Attributes:
        format: The name of one that an installed plug-in brings, or the object.
        views: Whether weights are views of the mapped file.
        examples: How many damaged files are tried.
    """

    format: ClassVar[str | Format]
    views: ClassVar[bool] = True
    examples: ClassVar[int] = 50

    @pytest.fixture
    def plugins(self) -> PluginSet:
        """The plug-ins, the format's among them."""
        if isinstance(self.format, str):
            return default_plugins()
        return plugins_and("register_formats", self.format)

    @pytest.fixture
    def sample(self, tmp_path: Path, plugins: PluginSet) -> Path:
        """The model of ``tenonnx.testing.models.mlp()`` in a file of the format."""
        found = self._format(plugins)
        assert found.save is not None, "write the fixture `sample`: the format has no save"
        path = tmp_path / f"sample{found.suffixes[0] if found.suffixes else ''}"
        found.save(ir.from_proto(mlp()), path)
        return path

    def test_it_knows_its_own_files_and_no_others(self, sample: Path, plugins: PluginSet) -> None:
        """``sniff`` recognizes the sample, and neither ONNX nor what is too short to tell."""
        sniff = self._format(plugins).sniff
        assert sniff(sample.read_bytes()[:HEADER_BYTES])
        for other in (b"", b"\0", b"\0" * HEADER_BYTES, mlp().SerializeToString()[:HEADER_BYTES]):
            assert not sniff(other), other
        first = [f for f in plugins.formats.values() if f.sniff(sample.read_bytes()[:HEADER_BYTES])]
        assert [f.name for f in first] == [self._format(plugins).name]

    @pytest.mark.parametrize("form", ["path", "bytes"])
    def test_it_reads_the_same_model(self, sample: Path, plugins: PluginSet, form: str) -> None:
        """Name, types and results are those of the ONNX model, from a file and from bytes."""
        source = sample if form == "path" else sample.read_bytes()
        options = SessionOptions(plugins=plugins)
        session, original = (InferenceSession(m, options) for m in (source, mlp()))
        for mine, given in (
            (session.get_inputs(), original.get_inputs()),
            (session.get_outputs(), original.get_outputs()),
        ):
            assert [(v.name, v.type, len(v.shape)) for v in mine] == [
                (v.name, v.type, len(v.shape)) for v in given
            ]
        expected, actual = (s.run(None, {"x": X}) for s in (original, session))
        assert_similar(expected, actual, 1e-5, 1e-6)

    def test_weights_are_the_registrys(self, sample: Path, plugins: PluginSet) -> None:
        """Two sessions have the same weights, read-only; none outlives them."""
        registry = WeightRegistry()
        options = SessionOptions(plugins=plugins, weights=registry)
        one, two = (InferenceSession(sample, options) for _ in range(2))
        if self.views:
            assert [id(w) for w in one.weights] == [id(w) for w in two.weights]
            assert registry.report().private == 0
            assert registry.report().mapped
        assert one.weights
        for weight in one.weights:
            assert not weight.array.flags.writeable
        del one, two, weight
        gc.collect()
        assert registry.report().mapped == 0

    def test_damaged_files_are_refused_in_words(
        self, sample: Path, plugins: PluginSet, tmp_path: Path
    ) -> None:
        """A file that is cut or altered loads, or raises one of tenonnx's errors."""
        content = sample.read_bytes()
        load, damaged = self._format(plugins).load, tmp_path / f"damaged{sample.suffix}"
        reach = st.integers(0, len(content) - 1)

        @hypothesis.settings(max_examples=self.examples, deadline=None, database=None)
        @hypothesis.given(reach, reach, st.integers(1, 255), st.booleans())
        def holds(cut: int, place: int, flip: int, shorter: bool) -> None:
            altered = bytearray(content)
            altered[place] ^= flip
            written = bytes(altered[: cut if shorter else None])
            # A new file: the bytes of a mapped one must not change.
            damaged.unlink(missing_ok=True)
            damaged.write_bytes(written)
            for source in (damaged, written):
                with contextlib.suppress(TenonnxError):
                    load(source, WeightRegistry())

        holds()

    def test_what_it_saves_it_reads(self, plugins: PluginSet, tmp_path: Path) -> None:
        """A model that it wrote gives the results of the one it was made from."""
        found = self._format(plugins)
        if found.save is None:
            pytest.skip(f"{found.name} is only read")
        path = tmp_path / f"saved{found.suffixes[0] if found.suffixes else ''}"
        original: onnx.ModelProto = mlp()
        found.save(ir.from_proto(original), path)
        options = SessionOptions(plugins=plugins)
        expected, actual = (
            InferenceSession(m, options).run(None, {"x": X}) for m in (original, path)
        )
        assert_similar(expected, actual, 1e-5, 1e-6)

    def _format(self, plugins: PluginSet) -> Format:
        return plugins.formats[self.format] if isinstance(self.format, str) else self.format
