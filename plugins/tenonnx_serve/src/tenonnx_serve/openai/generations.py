"""Requests to a language model: which are admitted, and the threads that generate for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import cached_property, partial
from typing import TypeAlias, TypeVar

from tenonnx.process import interruption
from tenonnx.process.interruption import Stopped
from tenonnx_generate import Generator
from tenonnx_generate.engine_values import EngineLoad
from tenonnx_generate.errors import Unsupported
from tenonnx_generate.search import log_probabilities
from tenonnx_serve.counts import TextCounts
from tenonnx_serve.errors import BadRequest, Busy, TimedOut
from tenonnx_serve.openai.engine_thread import EngineThread
from tenonnx_serve.openai.language_model import LanguageModel
from tenonnx_serve.openai.steps import Job, Step
from tenonnx_serve.statistics import Execution, Spent
from tenonnx_serve.threads import Stop, Threads

log = logging.getLogger("tenonnx.serve")

T = TypeVar("T")

# A token, what a text failed with, or its end.
Event: TypeAlias = Step | BaseException | None


class Times:
    """The times of one text, for the counts of its model.

    Args:
        counts: The counts.
        job: The text.
    """

    def __init__(self, counts: TextCounts, job: Job) -> None:
        self._counts, self._job = counts, job
        self._began = self._latest = time.perf_counter()
        self._tokens, self._reason = 0, ""

    def note(self, event: Step | None) -> None:
        """Note a token, or the end."""
        now = time.perf_counter()
        if event is None or event.ends:
            self._reason = self._reason or ("length" if event is None else "stop")
            return
        self._tokens += 1
        kind = "first_token" if self._tokens == 1 else "token"
        self._counts.seconds[kind].observe(now - self._latest)
        self._counts.tokens["generated"] += 1
        self._latest = now

    def end(self, *, whole: bool) -> None:
        """Count the text, which has ended: not ``whole`` if it was broken off."""
        counts, usage = self._counts, self._job.usage
        reason = (self._reason or "stop") if whole else "abort"
        counts.finished[reason] += 1
        counts.seconds["whole"].observe(time.perf_counter() - self._began)
        counts.tokens["prompt"] += len(self._job.prompt)
        counts.tokens["drafted"] += self._job.drafted[0]
        counts.tokens["accepted"] += self._job.drafted[1]
        if usage is not None:
            counts.seconds["queue"].observe(usage.queue_seconds)
            counts.tokens["cached"] += usage.cached_prompt_tokens


class Generations:
    """The requests to one version of a language model.

    An engine generates all texts together. Each text has a thread where the graph returns caches
    that are longer at each step, or tokens are drafted: no engine does that.

    Args:
        model: The model.
        count: How many texts have a thread at once.
        most: How many may wait or be generated.
        observe: Told of every request that ended.
        counts: Counts of the texts.

    Attributes:
        waiting: How many texts wait or are generated.
    """

    def __init__(
        self,
        model: LanguageModel,
        count: int,
        most: int,
        observe: Callable[[LanguageModel, Spent | None, int], None],
        counts: TextCounts,
    ) -> None:
        self._counts = counts
        self.model, self._most, self._observe = model, most, observe
        self.waiting = 0
        self._engine: EngineThread | None = None
        self._count_threads = count
        if model.drafts:
            log.info("model %s: each text has a thread and drafted tokens", model.name)
            return
        try:
            self._engine = EngineThread(model.model, model.rows, most, model.adapters)
        except Unsupported:
            log.info("model %s: each text has a thread", model.name)

    @cached_property
    def _threads(self) -> Threads:
        """Threads for what no engine does."""
        return Threads(self._count_threads, "tenonnx-generate")

    async def steps(
        self, jobs: Sequence[Job], seconds: float
    ) -> AsyncGenerator[tuple[int, Step], None]:
        """Yield tokens of several texts as they come, each with its text's number.

        Whoever closes it, or is cancelled, ends what is generated.

        Args:
            jobs: The texts; those that whoever asks has finished are not waited for.
            seconds: How long all of it may take.

        Raises:
            BadRequest: There are more than may wait.
            Busy: Too many wait.
            TimedOut: It takes longer.
        """
        if len(jobs) > self._most:
            raise BadRequest(f"a request has {len(jobs)} texts; this server takes {self._most}")
        if self.waiting + len(jobs) > self._most:
            raise Busy(f"model '{self.model.name}' has {self.waiting} requests waiting already")
        loop, began = asyncio.get_running_loop(), time.perf_counter_ns()
        events = asyncio.Queue[tuple[int, Event]]()
        # The limit comes as an event, too: nothing else has to wake the loop below.
        late = TimedOut(f"the request took longer than {seconds:g} s")
        timer = loop.call_later(seconds, events.put_nowait, (0, late))
        self.waiting += len(jobs)
        first, whole = 0, False
        times = [Times(self._counts, job) for job in jobs]
        try:
            for number, job in enumerate(jobs):
                job.stop = Stop(seconds)
                tell = partial(_put_event, loop, events, number)
                if self._engine is not None:
                    self._engine.begin(job, tell)
                else:
                    self._threads.submit(partial(self._work, job, tell))
            while not all(job.done for job in jobs):
                number, event = await events.get()
                first = first or time.perf_counter_ns()
                if isinstance(event, BaseException):
                    raise event
                times[number].note(event)
                if event is None:
                    jobs[number].done = True
                elif not jobs[number].done:
                    yield number, event
            whole = True
        finally:
            timer.cancel()
            self.waiting -= len(jobs)
            whole = whole or all(job.done for job in jobs)
            for each in times:
                each.end(whole=whole)
            for job in jobs:
                job.finish()
            self._count(began, first, len(jobs) if whole else 0)

    async def worked(self, work: Callable[[], T], seconds: float) -> T:
        """Return what a function returns that a thread calls: other work of the model.

        Args:
            work: The function; it ends when nobody waits for it any more.
            seconds: How long it may take.

        Raises:
            Busy: Too many wait.
            TimedOut: It takes longer.
        """
        if self.waiting >= self._most:
            raise Busy(f"model '{self.model.name}' has {self.waiting} requests waiting already")
        stop, began, texts = Stop(seconds), time.perf_counter_ns(), 0
        self.waiting += 1

        def limited() -> T:
            with interruption.limited(stop):
                stop.check()
                return work()

        try:
            found: T = await self._threads.submit(limited)
            texts = 1
        except Stopped as error:
            raise TimedOut(str(error.args[0])) from None
        finally:
            stop.reason = "nobody waits any more"
            self.waiting -= 1
            self._count(began, 0, texts)
        return found

    def _count(self, began: int, first: int, texts: int) -> None:
        """Count a request; one that failed or was given up has no texts."""
        now, statistics = time.perf_counter_ns(), self.model.statistics
        spent = None
        if texts:
            run = Execution(first or began, first or began, now, 1, texts)
            spent = Spent(run.began - began, texts, run)
            statistics.ran(run, now)
            statistics.succeeded(spent, now - began)
        else:
            statistics.fail.add(now - began)
        self._observe(self.model, spent, now - began)

    def _work(self, job: Job, tell: Callable[[Event], None]) -> None:
        """Generate one text, in a thread."""
        try:
            with interruption.limited(job.stop):
                self._generate(job, tell)
        except Stopped as error:
            tell(None if job.done else TimedOut(str(error.args[0])))
        except BaseException as error:  # whatever it is, who waits is to know
            tell(error)
        else:
            tell(None)

    def _generate(self, job: Job, tell: Callable[[Event], None]) -> None:
        job.stop.check()
        generator = Generator(self.model.model, job.params)
        if job.adapter and self.model.adapters is not None:
            generator.set_active_adapter(self.model.adapters, job.adapter)
        for name, array in job.images.items():
            generator.set_model_input(name, array)
        for token in job.prompt[1:].tolist() if job.tells_prompt else ():
            generator.append_tokens(job.prompt[generator.token_count() :][:1])
            job.stop.check()
            logits = generator.get_logits()[0, 0]
            job.prompt_chances.append(log_probabilities(logits, token, job.top))
        generator.append_tokens(job.prompt[generator.token_count() :])
        try:
            self._write(generator, job, tell)
        finally:
            told = generator.get_speculative_stats()
            job.drafted = told["draft_tokens_proposed"], told["draft_tokens_accepted"]

    def _write(self, generator: Generator, job: Job, tell: Callable[[Event], None]) -> None:
        ends = job.params.ends
        while not generator.is_done():
            job.stop.check()
            generator.generate_next_token()
            token = int(generator.get_next_tokens()[0])
            chances = generator.get_next_logprobs(job.top)[0] if job.top >= 0 else []
            tell(Step(token, chances, token in ends))

    def load(self) -> dict[str, float]:
        """Return how many texts run and wait, and the share of the caches that holds tokens."""
        if self._engine is not None:
            return vars(self._engine.load)
        running = min(self.waiting, self._count_threads)
        return vars(EngineLoad(running, self.waiting - running, 0.0))

    def close(self) -> None:
        """Take no more texts; the threads end when those that were begun are."""
        if self._engine is not None:
            self._engine.close()
        if "_threads" in vars(self):
            self._threads.end()


def _put_event(
    loop: asyncio.AbstractEventLoop,
    events: asyncio.Queue[tuple[int, Event]],
    number: int,
    event: Event,
) -> None:
    """Put an event into the queue of an event loop, from a thread."""
    with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
        loop.call_soon_threadsafe(events.put_nowait, (number, event))
