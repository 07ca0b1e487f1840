"""The meaning of bundle ids survives a crash, and a change costs the same however many ids there
are."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from torrentdist.bundle.store import catalog as catalogs
from torrentdist.bundle.store.catalog import Catalog
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest

ONE, TWO = Digest("1" * 64), Digest("2" * 64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.json"


def log_of(path: Path) -> Path:
    return path.with_suffix(".log")


def test_a_change_outlives_a_crash(path: Path) -> None:
    """A host would forget a download that ended just before the host was killed."""
    catalog = Catalog.open(path)
    catalog.bind(BundleId("a"), ONE)
    catalog.bind(BundleId("b"), ONE)
    catalog.bind(BundleId("a"), TWO)
    catalog.unbind(BundleId("b"))
    catalog.bind(BundleId("c"), TWO)

    again = Catalog.open(path)  # the first was never closed
    assert {"a": TWO, "c": TWO} == again.bindings()
    assert (set(), {"a", "c"}) == (again.names(ONE), again.names(TWO))


@pytest.mark.case("G11")
def test_a_change_writes_as_much_whatever_is_bound(path: Path) -> None:
    """G11: each upload would write all names of all bundles again."""
    catalog = Catalog.open(path)
    for number in range(500):
        catalog.bind(BundleId(f"other-{number}"), ONE)
    catalog.close()
    catalog = Catalog.open(path)
    before = path.stat()
    catalog.bind(BundleId("new"), TWO)

    assert before == path.stat()
    assert log_of(path).stat().st_size < 200


@pytest.mark.parametrize("torn", [b'{"bundle":"torn","digest":"22', b'{"bundle":"torn","di\0\0\0\0\0\0\0"}\n'])
def test_a_torn_line_is_as_if_it_had_never_been(path: Path, torn: bytes) -> None:
    """A host that lost power during a write could not start again, or would misread a change."""
    catalog = Catalog.open(path)
    catalog.bind(BundleId("a"), ONE)
    with log_of(path).open("ab") as file:
        file.write(torn)

    again = Catalog.open(path)
    assert {"a": ONE} == again.bindings()
    again.bind(BundleId("b"), TWO)
    assert {"a": ONE, "b": TWO} == Catalog.open(path).bindings()


def test_a_torn_line_is_dropped_wherever_it_was_torn(path: Path) -> None:
    """If this fails, a host that lost power does not start again, or binds an id to other
    content."""
    catalog = Catalog.open(path)
    catalog.bind(BundleId("a"), ONE)
    before = log_of(path).read_bytes()
    catalog.bind(BundleId("a"), TWO)
    line = log_of(path).read_bytes().removeprefix(before)
    torn = [line[:length] for length in range(len(line))]
    torn += [bytes(length) + line[length:] for length in range(1, len(line))]
    torn += [line[:length] + bytes(len(line) - length) for length in range(len(line))]
    found = []
    for rest in torn:
        log_of(path).write_bytes(before + rest)
        found.append(Catalog.open(path).lookup(BundleId("a")))

    assert [ONE] * len(torn) == found


def test_no_flipped_bit_changes_or_loses_a_binding(path: Path) -> None:
    """If this fails, a bad disk makes a host forget what an id stands for, without a message."""
    Catalog.open(path).bind(BundleId("a"), ONE)
    raw = log_of(path).read_bytes()
    found: set[Digest | str | None] = set()
    for bit in range(8 * len(raw)):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        log_of(path).write_bytes(damaged)
        try:
            found.add(Catalog.open(path).lookup(BundleId("a")))
        except TorrentdistError:
            found.add("refused")

    assert {ONE, "refused"} == found  # a bit of the word `crc` may flip


def test_a_line_of_an_older_release_counts(path: Path) -> None:
    """If this fails, a host forgets after an update what its bundles are called."""
    log_of(path).write_text(f'{{"bundle":"a","digest":"{ONE}"}}\n')

    assert {"a": ONE} == Catalog.open(path).bindings()


@pytest.mark.parametrize("line", [b"damaged", b'{"bundle": "damaged \xff", "digest": null}'])
def test_a_damaged_log_is_refused_and_kept(path: Path, line: bytes) -> None:
    """The meaning of ids would be lost without a message."""
    Catalog.open(path).bind(BundleId("a"), ONE)
    log_of(path).write_bytes(line + b"\n" + log_of(path).read_bytes())
    with pytest.raises(TorrentdistError) as failure:
        Catalog.open(path)

    assert ("disk_error", str(log_of(path))) == (failure.value.code, failure.value.fields["path"])
    assert log_of(path).read_bytes().startswith(line)


def test_a_pin_writes_the_bindings_that_only_the_log_had(path: Path) -> None:
    """A pin clears the log, so names would be lost with every pin."""
    catalog = Catalog.open(path)
    catalog.bind(BundleId("a"), ONE)
    catalog.pin(ONE)

    assert not log_of(path).exists()
    again = Catalog.open(path)
    assert {"a": ONE} == again.bindings()
    assert {ONE} == again.pins()


def test_the_log_does_not_grow_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that lives for years would read the changes of years when it starts."""
    monkeypatch.setattr(catalogs, "LONGEST_LOG", 10)
    catalog = Catalog.open(path)
    for number in range(101):
        catalog.bind(BundleId("a"), TWO if number % 2 else ONE)

    assert len(log_of(path).read_bytes().splitlines()) <= 10
    assert {"a": ONE} == Catalog.open(path).bindings()


def test_a_change_in_the_log_has_happened_though_the_disk_is_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose disk is full could not forget a bundle, and so kept its bytes."""
    monkeypatch.setattr(catalogs, "LONGEST_LOG", 0)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    catalog = Catalog.open(path)
    with monkeypatch.context() as disk:
        disk.setattr(catalogs, "write_durably", full)
        catalog.bind(BundleId("a"), ONE)
        catalog.bind(BundleId("b"), ONE)
        catalog.unbind(BundleId("a"))

    assert {"b": ONE} == catalog.bindings() == Catalog.open(path).bindings()
    catalog.bind(BundleId("c"), TWO)
    assert not log_of(path).exists()


def test_a_log_that_was_cleared_begins_anew_whatever_the_disk_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next lines would follow zeros in place of the old ones: no host could start."""
    catalog = Catalog.open(path)
    catalog.bind(BundleId("a"), ONE)

    def broken(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as disk:
        disk.setattr(catalogs, "fsync_dir", broken)
        with pytest.raises(TorrentdistError):
            catalog.pin(ONE)
    catalog.bind(BundleId("b"), ONE)
    catalog.bind(BundleId("c"), ONE)

    assert {"a": ONE, "b": ONE, "c": ONE} == Catalog.open(path).bindings()


def test_a_change_that_cannot_be_written_did_not_happen(path: Path) -> None:
    """A name would be there until the next restart, and then be gone."""
    catalog = Catalog.open(path)
    log_of(path).mkdir()
    with pytest.raises(TorrentdistError, match="Is a directory"):
        catalog.bind(BundleId("a"), ONE)

    assert catalog.lookup(BundleId("a")) is None
    log_of(path).rmdir()
    catalog.bind(BundleId("a"), ONE)
    assert {"a": ONE} == Catalog.open(path).bindings()
