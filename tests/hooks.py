"""Plug-ins as small as possible, and the models that show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

import tenonnx
from models import model, node, value

X = np.array([-1, 2], np.float32)
RELU = model([node("Relu", "x", "y", name="r")], [value("x")], [value("y")])


class Hooks:
    """An object as a plug-in: registers what it is given through one hook."""

    def __init__(self, *things: Any, **options: Any) -> None:
        self.things, self.options = things, options


class Providers(Hooks):
    @tenonnx.hookimpl
    def register_providers(self, register: Callable[..., None]) -> None:
        for thing in self.things:
            register(thing, **self.options)


class Operators(Hooks):
    @tenonnx.hookimpl
    def register_operators(self, register: Callable[..., None]) -> None:
        for thing in self.things:
            register(thing, **self.options)


class Transforms(Hooks):
    @tenonnx.hookimpl
    def register_transforms(self, register: Callable[..., None]) -> None:
        for thing in self.things:
            register(thing, **self.options)


class Formats(Hooks):
    @tenonnx.hookimpl
    def register_formats(self, register: Callable[..., None]) -> None:
        for thing in self.things:
            register(thing, **self.options)


class Nothing(tenonnx.Provider):
    name = "NothingProvider"
    aliases = ("nothing",)

    def supports(self, node: ir.Node) -> Literal[True] | str:
        return f"nothing runs here, {node.op_type} neither"

    def compile(self, segment: tenonnx.Segment) -> list[tenonnx.Step]:
        raise AssertionError(segment)


def options_with(*things: Any, hooks: type[Hooks] = Providers) -> tenonnx.SessionOptions:
    plugins = tenonnx.PluginSet()
    plugins.register(hooks(*things))
    return tenonnx.SessionOptions(plugins=plugins)


def domain_model(op: str = "Double", domain: str = "com.example", version: int = 1) -> Any:
    made = node(op, "x", "y", name="d", domain=domain)
    return model([made], [value("x")], [value("y")], domains={domain: version})
