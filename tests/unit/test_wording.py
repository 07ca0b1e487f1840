"""How counts, causes and text from outside are printed."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import cause_text, counted, printable


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(0, "file", "0 files"), (1, "file", "1 file"), (2, "process", "2 processes"), (12345, "file", "12,345 files")],
)
def test_one_thing_is_no_plural(number: int, noun: str, text: str) -> None:
    """A user would read "1 files"."""
    assert text == counted(number, noun)


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", b"/a/b"), "/a/b: No such file or directory"),
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 111] Connect call"),
            "Connection refused",
        ),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "certificate verify failed"), "certificate verify failed"),
        (KeyError("masters"), "masters is missing"),
        (ExceptionGroup("two", [ValueError("a"), ValueError("a"), ValueError("b")]), "a; b"),
        (TimeoutError(), ""),
    ],
)
def test_causes_read_as_sentences(cause: BaseException, text: str) -> None:
    """A user would read Python: an errno in brackets, a bytes literal, a repr."""
    assert text == cause_text(cause)


@pytest.mark.parametrize(
    "hostile", ["\x1b[2J", "\r", "\x7f", "\x9b31m", "\u202e", "\u200b", "\u2066", "\ufeff", "\n", "\udcff"]
)
def test_nothing_that_steers_a_terminal_is_printed(hostile: str) -> None:
    """A file name could clear the screen, or show another name than its own."""
    shown = printable(f"a{hostile}b")

    assert shown.isprintable()
    assert shown.startswith("a\\")
    assert shown.endswith("b")


def test_a_note_is_added_to_the_sentence_and_crosses_processes() -> None:
    """A client would say only that there is no bundle, where the master knows that it was
    removed."""
    error = TorrentdistError("bundle_not_found", id="etl-1", note="it was removed")

    assert "there is no bundle 'etl-1': it was removed" == error.message
    assert error.message == TorrentdistError.from_wire(error.to_wire()).message
    assert "there is no bundle 'etl-1'" == TorrentdistError("bundle_not_found", id="etl-1", note="").message


def test_an_error_from_elsewhere_whose_hint_lacks_a_field_is_told_all_the_same() -> None:
    """A master of another release, or a damaged answer, would end the daemon that logs its hint."""
    lacking = {"error": "missing_dependency", "message": "no libtorrent", "fields": {"detail": "no libtorrent"}}
    error = TorrentdistError.from_wire(lacking)

    assert ("missing_dependency", "no libtorrent", "") == (error.code, error.message, error.hint)
