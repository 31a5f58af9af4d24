"""The one exception of tilewire."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WaitReport:
    """What a wait that failed wanted, and what it saw."""

    op: str  #: operator, "all_gather_gemm"; or what the ranks were to agree on: "make_op", "barrier"
    rank: int  #: rank that waited
    lane: str
    task: int  #: index of the waiting task in its lane; -1: ranks were to agree, outside of any operator
    signal: str  #: "arrived[3] on rank 0"
    wanted: int  #: value waited for, counted over all calls
    seen: int  #: value seen last


class Error(RuntimeError):
    """What went wrong: the rule that is broken, and the value seen.

    `kind` is one of `invalid_input`, `unsupported`, `refused_plan`, `wrong_result`, `rank_lost`, `timeout` and
    `internal`. `report` says what a wait that failed had seen (`rank_lost`, `timeout`), or is None.
    """

    def __init__(self, message: str, kind: str = "internal", report: WaitReport | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.report = report

    def __reduce__(self) -> tuple[type[Error], tuple[str, str, WaitReport | None]]:
        """Keep kind and report from process to process."""
        return Error, (str(self), self.kind, self.report)
