"""What the driver asks of a worker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """One run of one workload.

    Attributes:
        workload: An id such as ``W3``.
        uri: The server, or the relay before it.
        control: The relay's control port; 0 when nothing is relayed.
        quick: Whether to run the small size.
    """

    workload: str
    uri: str
    control: int
    quick: bool
