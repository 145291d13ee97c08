"""pytest's side: fixtures for whoever tests a plug-in of tenonnx. Importing it costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--tenonnx-provider``."""
    group = parser.getgroup("tenonnx")
    group.addoption(
        "--tenonnx-provider",
        action="append",
        default=[],
        metavar="NAME",
        help="provider for tests with the fixture tenonnx_provider; may be repeated, "
        "all that are registered by default",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with the fixture ``tenonnx_provider`` once for each provider."""
    if "tenonnx_provider" in metafunc.fixturenames:
        names = metafunc.config.getoption("--tenonnx-provider")
        if not names:
            import tenonnx

            names = tenonnx.get_all_providers()
        metafunc.parametrize("tenonnx_provider", names, indirect=True)


@pytest.fixture
def tenonnx_provider(request: pytest.FixtureRequest) -> str:
    """The name of a provider; the test runs on each, and is skipped where one is not usable."""
    import tenonnx
    from tenonnx.provider import why_unusable

    provider = tenonnx.default_plugins().provider(request.param)
    problem = why_unusable(provider)
    if problem is not None:
        pytest.skip(f"{provider.name}: {problem}")
    return provider.name


@pytest.fixture
def tenonnx_model() -> Callable[..., Any]:
    """Build a model from a line of ONNX's text form: ``tenonnx_model("y = Relu(x)")``."""
    from tenonnx.testing.models import build

    return build


@pytest.fixture
def tenonnx_mlp() -> Any:
    """Two layers with random weights; the input is ``x``, float[n, 16]."""
    from tenonnx.testing.models import mlp

    return mlp()
