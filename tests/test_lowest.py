"""``tox -e oldest`` installs the least version that pyproject.toml allows of every dependency."""

from __future__ import annotations

import pytest
from tools import lowest


def test_constraints_are_the_least_versions() -> None:
    listed = ["a>=1.2,<3", "b[x,y]>=0.9", "c >= 2; sys_platform == 'linux'", "b>=0.10"]
    assert lowest.constraints(listed) == ["a==1.2", "b==0.10", "c==2"]


@pytest.mark.parametrize("requirement", ["a", "a<2", "a==1", "a~=1.0"])
def test_a_requirement_without_a_least_version_is_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="has no least version: write name>=version"):
        lowest.constraints([requirement])


def test_every_dependency_has_a_least_version() -> None:
    found = lowest.constraints(lowest.requirements())
    names = {line.partition("==")[0] for line in found}
    assert names >= {"numpy", "onnx", "onnx-ir", "ray", "uvicorn"}
