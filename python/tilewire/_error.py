"""The one exception of tilewire."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WaitReport:
    """The wait that failed: its threshold and the last value of its signal."""

    op: str  #: operator, "all_gather_gemm"; outside operators the collective function: "make_op", "barrier"
    rank: int  #: rank that waited
    lane: str
    task: int  #: index of the waiting task in its lane; -1: the wait was outside of operators
    signal: str  #: "arrived[3] on rank 0"
    wanted: int  #: threshold, counted over all calls
    seen: int  #: value of the signal when the wait ended


class Error(RuntimeError):
    """An error of tilewire. The text names the broken rule and the value seen.

    `kind` is one of `invalid_input`, `unsupported`, `refused_plan`, `wrong_result`, `rank_lost`, `timeout` and
    `internal`. `report` describes the failed wait (`rank_lost`, `timeout`), or is None.
    """

    def __init__(self, message: str, kind: str = "internal", report: WaitReport | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.report = report

    def __reduce__(self) -> tuple[type[Error], tuple[str, str, WaitReport | None]]:
        """Keep kind and report when the error is pickled."""
        return Error, (str(self), self.kind, self.report)
