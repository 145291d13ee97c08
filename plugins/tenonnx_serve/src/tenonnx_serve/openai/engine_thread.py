"""The thread that runs an engine: one step of the model serves all texts that are generated."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tenonnx_generate import Adapters, Model
from tenonnx_generate.engine import Engine
from tenonnx_generate.engine_values import EngineLoad
from tenonnx_generate.request import Request
from tenonnx_generate.turns import EngineEvent, RequestOptions, TurnOptions
from tenonnx_serve.openai.steps import Job, Step

log = logging.getLogger("tenonnx.serve")

Tell = Callable[[Step | BaseException | None], None]

MAX_EVENTS = 64


class EngineThread:
    """A thread that runs an engine while there are texts to generate.

    Args:
        model: The model.
        rows: How many texts share a step.
        most: How many texts may wait.
        adapters: Those of the model, if it has some.

    Raises:
        Unsupported: The model's caches do not stay in place.
    """

    def __init__(
        self, model: Model, rows: int, most: int, adapters: Adapters | None = None
    ) -> None:
        self._adapters = adapters
        self._engine = Engine(model, max_batch_size=rows, max_waiting_turns=most)
        self._begun: dict[Request, tuple[Job, Tell]] = {}
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._work, name="tenonnx-engine", daemon=True).start()

    def begin(self, job: Job, tell: Tell) -> None:
        """Have a text generated; ``tell`` is called in the engine's thread, at last with ``None``.

        Raises:
            TenonnxError: It cannot be.
        """
        session = RequestOptions()
        session.set_max_session_tokens(job.params.max_length)
        session.set_cache_salt(job.cache_salt)
        if job.adapter and self._adapters is not None:
            session.set_active_adapter(self._adapters, job.adapter)
        request = self._engine.create_request(options=session)
        options = TurnOptions(request)
        options.params = job.params
        least = job.params.get_search_options()["min_length"] - len(job.prompt)
        options.set_min_generated_tokens(max(least, 0))
        options.set_logprobs(job.top if job.top >= 0 else None)
        options.set_prompt_logprobs(job.top if job.tells_prompt else None)
        with self._changed:
            self._begun[request] = job, tell
            try:
                request.begin_turn(job.prompt, options)
            except BaseException:
                del self._begun[request]
                raise
            job.cancel = request.close
            self._changed.notify()

    @property
    def load(self) -> EngineLoad:
        """The present load of the engine."""
        return self._engine.get_load()

    def close(self) -> None:
        """End the thread after the texts that were begun."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _work(self) -> None:
        buffer = self._engine.create_event_buffer(MAX_EVENTS)
        while True:
            with self._changed:
                while not (self._engine.has_pending_requests() or self._closed):
                    self._changed.wait()
                if not self._engine.has_pending_requests():
                    return
            try:
                for event in self._engine.run(buffer):
                    self._dispatch(event)
            except BaseException as error:  # whatever it is, those who wait are to know
                log.exception("an engine failed")
                self._give_up(error)

    def _dispatch(self, event: EngineEvent) -> None:
        if event.request not in self._begun:
            return
        job, tell = self._begun[event.request]
        job.prompt_chances = event.prompt_logprobs or job.prompt_chances
        if event.error is not None:
            tell(event.error)
        elif event.token is not None:
            tell(Step(event.token, event.logprobs or [], ends=False))
        elif event.finish_reason.name == "EOS":
            tell(Step(-1, [], ends=True))
        if event.finish_reason:
            job.usage = event.usage
            with self._changed:
                del self._begun[event.request]
            event.request.close()
            tell(None)

    def _give_up(self, error: BaseException) -> None:
        with self._changed:
            left, self._begun = self._begun, {}
        for request, (_, tell) in left.items():
            request.close()
            tell(error)
