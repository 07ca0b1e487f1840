"""Decides which bytes of a bundle have to be sent, where its files count as one sequence of bytes.

Always: every byte of a missing piece is in a span. Spans are in order and do not touch.
Pure: no I/O and no clock.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from torrentdist.bundle.metafile import WireFile

LEAST_SKIPPED: Final = 16 * 1024
"""Fewer known bytes between two spans are sent too, since another request costs as much."""


class MissingSpan(NamedTuple):
    start: int
    end: int


def missing_spans(files: Iterable[WireFile], piece_length: int, have: Sequence[bool]) -> list[MissingSpan]:
    """Returns what to send, given whether each piece is here."""
    spans: list[MissingSpan] = []
    start, number = 0, 0
    for file in files:
        for at in range(0, file.size, piece_length):
            end = start + min(at + piece_length, file.size)
            if not have[number]:
                _add(spans, MissingSpan(start + at, end))
            number += 1
        start += file.size
    return spans


def _add(spans: list[MissingSpan], span: MissingSpan) -> None:
    if spans and span.start - spans[-1].end < LEAST_SKIPPED:
        span = MissingSpan(spans.pop().start, span.end)
    spans.append(span)


def next_span(spans: Sequence[MissingSpan], offset: int, size: int) -> MissingSpan:
    """Returns what to send next of a bundle of `size` bytes, all before `offset` being here. It is
    empty at the end."""
    for span in spans:
        if span.end > offset:
            return MissingSpan(max(offset, span.start), span.end)
    return MissingSpan(size, size)
