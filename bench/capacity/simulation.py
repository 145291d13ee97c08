"""A cluster in simulated time: replicas start, models are fetched, requests are answered."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

Then = Callable[[], None]


@dataclass(frozen=True)
class Times:
    """Seconds that things take, as measured.

    Attributes:
        start: From the wish for a replica until its process runs the model's code.
        fetch: The model from object storage; the first replica of a node does it, others wait.
        open: The session and its warm-up, once the model is on the node.
        run: A request in a replica, which runs one at a time.
        route: A request's way there and back.
        together: How many replicas start on a node without slowing each other down.
    """

    start: float
    fetch: float
    open: float
    run: float
    route: float = 0.0
    together: float = math.inf


@dataclass(frozen=True)
class Scaling:
    """The rule by which replicas are added: as Ray Serve's ``autoscaling_config`` says it.

    Attributes:
        least: Replicas at the beginning.
        most: Replicas at most.
        target: Requests in flight that a replica should have.
        interval: Seconds between two looks.
        delay: Seconds for which more must be wanted.
    """

    least: int
    most: int
    target: float = 2.0
    interval: float = 1.0
    delay: float = 30.0


@dataclass
class Result:
    """The outcome of a simulation.

    Attributes:
        ready: When each replica began to answer, in order.
        wished: When each replica was asked for.
        fetches: How often each node fetched the model.
        latencies: Seconds of each request from its sending to its answer, in order of answers.
        ends: When each was answered.
    """

    ready: list[float] = field(default_factory=list)
    wished: list[float] = field(default_factory=list)
    fetches: list[int] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    def throughput(self, begin: float, end: float) -> float:
        """Return answers per second between two moments."""
        return sum(begin <= moment < end for moment in self.ends) / (end - begin)

    def latency(self, share: float) -> float:
        """Return the seconds within which a share of requests was answered."""
        return sorted(self.latencies)[math.ceil(share * len(self.latencies)) - 1]


@dataclass(eq=False)
class Replica:
    """A replica that is ready: what it was sent, of which the first runs."""

    queue: deque[tuple[float, Then | None]] = field(default_factory=deque)


class Cluster:
    """Nodes that each hold so many replicas of one model.

    A request goes to the shorter queue of two replicas drawn at random, as Ray routes it.

    Args:
        places: How many replicas each node holds.
        times: What takes how long.
        scaling: When replicas are added.
        seed: Of what is drawn.
    """

    def __init__(self, places: list[int], times: Times, scaling: Scaling, seed: int = 0) -> None:
        self.now = 0.0
        self.result = Result(fetches=[0] * len(places))
        self._times, self._scaling = times, scaling
        self._drawn = random.Random(seed)
        self._events: list[tuple[float, int, Then]] = []
        self._order = itertools.count()
        self._room = list(places)
        self._starting = [0] * len(places)
        self._there = [math.inf] * len(places)
        self._replicas: list[Replica] = []
        self._unrouted: list[tuple[float, Then | None]] = []
        self._asked = self._flying = 0
        self._wanted_since = math.inf
        self._add(scaling.least)
        if scaling.most > scaling.least:
            self._later(scaling.interval, self._look)

    def closed(self, clients: int) -> None:
        """Have clients send a request, wait for its answer, and send the next."""
        for _ in range(clients):
            self._send_again()

    def open(self, rate: float, seconds: float) -> None:
        """Have requests come at random, so many per second, for so long from now on."""
        moment = self._drawn.expovariate(rate)
        while moment < seconds:
            self._later(moment, partial(self._send, None))
            moment += self._drawn.expovariate(rate)

    def until(self, end: float) -> Result:
        """Go on to a moment; return what happened so far."""
        while self._events and self._events[0][0] <= end:
            self.now, _, happen = heapq.heappop(self._events)
            happen()
        self.now = end
        return self.result

    def _later(self, seconds: float, happen: Then) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), happen))

    def _add(self, count: int) -> None:
        """Start replicas, each on the node that has most room; those that find none are left."""
        begun = []
        for _ in range(count):
            node = max(range(len(self._room)), key=self._room.__getitem__)
            if not self._room[node]:
                break
            self._room[node] -= 1
            self._starting[node] += 1
            self._asked += 1
            self.result.wished.append(self.now)
            begun.append(node)
        for node in begun:
            self._later(self._times.start * self._slower(node), partial(self._started, node))

    def _slower(self, node: int) -> float:
        return max(1.0, self._starting[node] / self._times.together)

    def _started(self, node: int) -> None:
        if self._there[node] == math.inf:
            self.result.fetches[node] += 1
            self._there[node] = self.now + self._times.fetch
        wait = max(0.0, self._there[node] - self.now)
        self._later(wait + self._times.open * self._slower(node), partial(self._ready, node))

    def _ready(self, node: int) -> None:
        self._starting[node] -= 1
        self.result.ready.append(self.now)
        self._replicas.append(Replica())
        waiting, self._unrouted = self._unrouted, []
        for each in waiting:
            self._route(*each)

    def _send_again(self) -> None:
        self._send(self._send_again)

    def _send(self, then: Then | None) -> None:
        self._flying += 1
        self._route(self.now, then)

    def _route(self, sent: float, then: Then | None) -> None:
        if not self._replicas:
            self._unrouted.append((sent, then))
            return
        two = self._drawn.sample(self._replicas, min(2, len(self._replicas)))
        replica = min(two, key=lambda each: len(each.queue))
        replica.queue.append((sent, then))
        if len(replica.queue) == 1:
            self._later(self._times.run, partial(self._ran, replica))

    def _ran(self, replica: Replica) -> None:
        self._later(self._times.route, partial(self._answered, *replica.queue.popleft()))
        if replica.queue:
            self._later(self._times.run, partial(self._ran, replica))

    def _answered(self, sent: float, then: Then | None) -> None:
        self._flying -= 1
        self.result.latencies.append(self.now - sent)
        self.result.ends.append(self.now)
        if then is not None:
            then()

    def _look(self) -> None:
        """Add replicas, if more have been wanted for as long as the scaling says."""
        scaling = self._scaling
        wanted = min(scaling.most, math.ceil(self._flying / scaling.target))
        if wanted <= self._asked:
            self._wanted_since = math.inf
        else:
            self._wanted_since = min(self._wanted_since, self.now)
            if self.now - self._wanted_since >= scaling.delay:
                self._add(wanted - self._asked)
                self._wanted_since = math.inf
        self._later(scaling.interval, self._look)
