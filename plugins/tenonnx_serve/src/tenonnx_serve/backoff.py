"""The delay before a worker that died is restarted."""

from __future__ import annotations

# The longest delay, in seconds.
MAX_DELAY_SECONDS = 30.0

# Seconds of service after which a death counts as a first one.
STEADY_SECONDS = 5.0


class Backoff:
    """Delays of one worker: none after a first death, then 0.5 s, doubled at each further death.

    A worker that has served for a while before it dies is started again at once.
    """

    def __init__(self) -> None:
        self.deaths = 0

    def died(self, served: float) -> float:
        """Return the delay in seconds after the death of a worker that served so many seconds."""
        self.deaths = 1 if served >= STEADY_SECONDS else self.deaths + 1
        return (
            0.0
            if self.deaths == 1
            else min(MAX_DELAY_SECONDS, 0.25 * 2 ** min(self.deaths - 1, 10))
        )
