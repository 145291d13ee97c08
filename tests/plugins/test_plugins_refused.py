"""Refused contributions of plug-ins: they do not fit, or their name is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import onnx_ir as ir
import pytest

import tenonnx
from hooks import Formats, Nothing, Operators, Providers, Transforms
from tenonnx_cpu.provider import CPUExecutionProvider


class Abstract(tenonnx.Provider):
    name = "AbstractProvider"

    def supports(self, node: ir.Node) -> Literal[True] | str:
        raise AssertionError(node)


class Nameless(Nothing):
    name = None  # type: ignore[assignment] # as if it had been forgotten


class OddOptions(Nothing):
    Options = dict


class OneLetterEach(Nothing):
    aliases = "chip"  # type: ignore[assignment] # a comma is missing


class Commands:
    def __init__(self, app: object) -> None:
        self.app = app

    @tenonnx.hookimpl
    def register_commands(self, register: Callable[[Any], None]) -> None:
        register(self.app)


class Shadow(Nothing):
    aliases = ("CPU",)


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Providers(3), r"expected a subclass of tenonnx\.Provider to be registered, got 3\n"),
        (Providers(Nothing()), r"expected a subclass.*\nHint: register the class"),
        (Providers(Abstract), "provider Abstract does not implement compile"),
        (Providers(Nameless), "provider Nameless has no name"),
        (Providers(OddOptions), "the Options of provider NothingProvider are not a dataclass"),
        (Providers(Nothing, Shadow), "the provider 'CPU' is registered by 'cpu'"),
        (Operators({"Relu": max}), r"expected a tenonnx\.OperatorTable to be registered, got {"),
        (Transforms(max), r"expected a tenonnx\.Transform to be registered, got <built-in"),
        (Formats("gguf"), r"expected a tenonnx\.Format to be registered, got 'gguf'"),
        (Transforms(max, levels=3), "TypeError: .*unexpected keyword argument 'levels'"),
        (Commands(3), r"expected a typer\.Typer to be registered, or what makes one, got 3"),
        (Providers(OneLetterEach), "expected the aliases of provider NothingProvider in a tuple"),
        (object(), "implements no hook"),
    ],
)
def test_what_does_not_fit_its_hook_is_refused_whole(plugin: Any, message: str) -> None:
    plugins = tenonnx.PluginSet()
    providers = list(plugins.providers)
    with pytest.raises(tenonnx.PluginError, match=message):
        plugins.register(plugin, name="mine")
    assert list(plugins.providers) == providers
    assert "mine" not in [record.name for record in plugins.records]
    plugins.register(Transforms(tenonnx.Transform("fine", lambda *_: False)), name="mine")


def test_a_transform_of_no_known_level_cannot_be_made() -> None:
    with pytest.raises(tenonnx.PluginError, match="level 'basics'; did you mean 'basic'"):
        tenonnx.Transform("t", lambda *_: False, level="basics")  # type: ignore[arg-type]


def test_names_in_the_place_of_lists_are_refused() -> None:
    with pytest.raises(tenonnx.PluginError, match="expected a tuple of operators"):
        tenonnx.Transform("t", lambda *_: False, needs="Neg")  # type: ignore[arg-type]
    with pytest.raises(tenonnx.PluginError, match="a kernel needs its operator's name"):
        tenonnx.OperatorTable().op(abs)  # type: ignore[arg-type]


def test_registering_a_plugin_twice_leaves_the_first() -> None:
    plugins = tenonnx.PluginSet(autoload=False)
    plugin = Providers(Nothing)
    plugins.register(plugin)
    with pytest.raises(tenonnx.PluginError, match="two plug-ins are named 'Providers'"):
        plugins.register(plugin)
    with pytest.raises(tenonnx.PluginError, match="it is registered already, as 'Providers'"):
        plugins.register(plugin, name="another")
    assert list(plugins.providers) == ["NothingProvider"]


def test_a_failed_plugin_leaves_no_kernel_behind() -> None:
    table = tenonnx.OperatorTable("com.example")
    table.rows({"Double": lambda _, x: x + x})

    class Half(Operators):
        @tenonnx.hookimpl
        def register_transforms(self) -> None:
            raise RuntimeError("halfway")

    plugins = tenonnx.PluginSet(autoload=False)
    with pytest.raises(tenonnx.PluginError, match="RuntimeError: halfway"):
        plugins.register(Half(table))
    assert len(plugins.operators_for(CPUExecutionProvider)) == 0
    plugins.register(Operators(table))
    assert len(plugins.operators_for(CPUExecutionProvider)) == 1


def test_a_kernel_that_another_plugin_has_is_a_collision() -> None:
    table = tenonnx.OperatorTable("com.example")
    table.rows({"Double": lambda _, x: x + x})
    plugins = tenonnx.PluginSet(autoload=False)
    plugins.register(Operators(table), name="one")
    with pytest.raises(
        tenonnx.PluginError, match=r"kernel 'com\.example::Double-1 for every provider' is regist"
    ):
        plugins.register(Operators(table), name="two")
    plugins.register(Operators(table, provider="cuda"), name="three")
    assert len(plugins.operators_for(CPUExecutionProvider)) == 1
