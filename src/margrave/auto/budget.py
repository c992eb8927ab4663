"""What a search may spend: seconds, or a number of fits, which repeats results."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field


@dataclass
class Budget:
    """Seconds, or fits if their number is limited; shares of it are between 0 and 1."""

    time_limit: float | None
    max_fits: int | None
    begin: float = field(default_factory=time.perf_counter)
    fits: int = 0

    @property
    def seconds(self) -> float:
        """Seconds since the begin."""
        return time.perf_counter() - self.begin

    @property
    def counts_fits(self) -> bool:
        """Whether fits are counted, and the clock decides nothing."""
        return self.max_fits is not None

    def spent(self) -> float:
        """The share that is spent."""
        if self.max_fits is not None:
            return self.fits / self.max_fits
        return 0.0 if self.time_limit is None else self.seconds / self.time_limit

    def left(self, share: float = 1.0) -> float:
        """Seconds until this share is spent; infinite where seconds do not count."""
        if self.counts_fits or self.time_limit is None:
            return math.inf
        return share * self.time_limit - self.seconds

    def fits_left(self, share: float = 1.0) -> int:
        """How many fits may follow until this share is spent."""
        if self.max_fits is None or math.isinf(share):
            return 1 << 30
        return math.ceil(share * self.max_fits) - self.fits
