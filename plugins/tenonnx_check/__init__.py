"""``tenonnx check`` and ``tenonnx reduce``: the node that is wrong, and the smallest model that is.

Every value of a model is computed once by a reference. With these values any set of its nodes is a
model that can be run alone: values that the set reads are its inputs, and the reference's values of
its outputs are what is expected. ``check`` runs every node alone, ``reduce`` looks for the smallest
set that fails as the whole model does. What stands in brackets is a module::

    model ─▶ [parts] a set of nodes as a model
                │
    [worker] a child process: opens and runs it ─▶ [outcome] fine, or how it fails
                │  a crash ends the child alone
                ▼
    [child] the parent's end ◀── [checking] nodes alone ◀── [check]
                            ◀── [shrinking] fewer nodes, sizes, outputs ◀── [reduce] ─▶ [script]
"""

from __future__ import annotations

from tenonnx import hookimpl
from tenonnx.cli import subcommands
from tenonnx.hookspecs import RegisterCommands


@hookimpl
def register_commands(register: RegisterCommands) -> None:
    """Add the subcommands; typer is imported when the command line asks for them."""
    register(subcommands(check="tenonnx_check.check", reduce="tenonnx_check.reduce"))
