"""Watch the anonymous memory of a process until the standard input closes; print the highest bytes.

    python watch_memory.py PID

If the watched process ends, its end of the pipe closes, so nothing is left running.
"""

from __future__ import annotations

import select
import sys
from pathlib import Path

INTERVAL = 0.01  # seconds between two looks


def anonymous(status: Path) -> int:
    (line,) = (part for part in status.read_text().splitlines() if part.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def main() -> None:
    status = Path(f"/proc/{sys.argv[1]}/status")
    peak = anonymous(status)
    print("watching", flush=True)
    while not select.select([sys.stdin], [], [], INTERVAL)[0]:
        peak = max(peak, anonymous(status))
    print(max(peak, anonymous(status)))


if __name__ == "__main__":
    main()
