"""Deployments of Ray Serve: one model, or a repository whose models share replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tenonnx import InferenceSession, NoSuchFile, SessionOptions
from tenonnx_ray import batching
from tenonnx_ray.batching import Feeds, Joined
from tenonnx_ray.fetching import is_address
from tenonnx_ray.needed import needed
from tenonnx_ray.opening import Source, opened, warm
from tenonnx_ray.repository import place_of
from tenonnx_ray.web import answered

serve = needed("ray.serve")


class OnnxReplica:
    """One model in a replica; requests that wait at the same time run together.

    From Python, ``handle.remote({"x": array})`` gives a dict of arrays; over HTTP, a POST of
    ``{"inputs": {"x": [...]}}`` gives ``{"outputs": {"y": [...]}}``.

    Args:
        source: A path that all nodes have, an address in object storage, which each node fetches
            once, or a small model's bytes.
        max_batch_size: The most requests that run together. Set more than 1 only for models whose
            rows are independent: the first dimension may be a batch's, or a sequence's.
        batch_wait_timeout_s: How long the first of them waits for others.
        warm_up: Run on zeros before the replica is ready, if inputs have fixed sizes.
        options: As for a session; a session gets as many threads as Ray gives its replica CPUs.
        providers: As for a session.
    """

    def __init__(
        self,
        source: Source,
        *,
        max_batch_size: int = 1,
        batch_wait_timeout_s: float = 0.0,
        warm_up: bool = True,
        options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
    ) -> None:
        self._session = opened(source, options, providers)
        if warm_up:
            warm(self._session, {1, max_batch_size})
        self._joins = max_batch_size > 1
        self._joined.set_max_batch_size(max_batch_size)
        self._joined.set_batch_wait_timeout_s(batch_wait_timeout_s)

    async def __call__(self, request: Any) -> Any:
        """Answer an HTTP request, or a handle's: inputs by name.

        Raises:
            TenonnxError: As ``InferenceSession.run``; over HTTP it is an answer with status 400.
        """
        return await answered(request, self._session, self._joined if self._joins else None)

    @serve.batch
    async def _joined(self, requests: list[Feeds]) -> Joined:
        return await batching.answers(self._session, requests)


class OnnxRepositoryReplica:
    """The models of a folder, each opened at its first request; the least used ones are closed.

    ``handle.options(multiplexed_model_id="name")`` or the header ``serve_multiplexed_model_id``
    names the model: ``name.onnx``, ``name/model.onnx``, or the largest version of
    ``name/1/model.onnx``, ``name/2/...``. Requests and answers are those of ``OnnxReplica``.

    Args:
        folder: A folder that all nodes have. Requests reach only models in it.
        max_models: How many a replica keeps open; they are mapped, so it may be many.
        max_batch_size: As for ``OnnxReplica``; requests to one model run together.
        batch_wait_timeout_s: As for ``OnnxReplica``.
        options: As for ``OnnxReplica``.
        providers: As for a session.

    Raises:
        NoSuchFile: The folder does not exist on the replica's node.
    """

    def __init__(
        self,
        folder: str,
        *,
        max_models: int = 16,
        max_batch_size: int = 1,
        batch_wait_timeout_s: float = 0.0,
        options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
    ) -> None:
        if is_address(folder) or not Path(folder).is_dir():
            raise NoSuchFile(f"{folder} is not a folder on this node")
        root = Path(folder).resolve()

        async def model(model_id: str) -> InferenceSession:
            place = place_of(root, model_id)
            return await asyncio.to_thread(opened, place, options, providers)

        # The decorator fixes the number of models when a class is made.
        self._model = serve.multiplexed(max_num_models_per_replica=max_models)(model)
        self._joins = max_batch_size > 1
        self._joined.set_max_batch_size(max_batch_size)
        self._joined.set_batch_wait_timeout_s(batch_wait_timeout_s)

    async def __call__(self, request: Any) -> Any:
        """Answer an HTTP request, or a handle's, with the named model.

        Raises:
            NoSuchFile: There is no model of that name.
            TenonnxError: As ``InferenceSession.run``; over HTTP both are answers, 404 and 400.
        """
        named = serve.get_multiplexed_model_id()
        return await answered(request, self._model(named), self._joined if self._joins else None)

    @serve.batch
    async def _joined(self, requests: list[Feeds]) -> Joined:
        # Ray passes requests to one model.
        session = await self._model(serve.get_multiplexed_model_id())
        return await batching.answers(session, requests)


OnnxDeployment = serve.deployment(OnnxReplica)
OnnxRepository = serve.deployment(OnnxRepositoryReplica)
