"""Which tests `make test` leaves out, because nothing that they depend on has changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import pytest

from scripts.proofs import (
    LIST,
    ROOT,
    VALID,
    Proved,
    ProvedTests,
    hash_of,
    imported_files,
    is_proved,
    make_proofs,
    read_proofs,
    read_record,
    succeeds,
)

TODAY = date(2026, 5, 1)
PROOF = ProvedTests("good", ("tests/test_good.py",), ("data/*",))
FILES = {
    LIST: """
[[proof]]
name = "good"
tests = ["tests/test_good.py"]
inputs = ["data/*"]
""",
    "tests/test_good.py": "from product.used import part\n",
    "product/__init__.py": "",
    "product/used.py": "def f():\n    import product.late\nif TYPE_CHECKING:\n    import product.named\n",
    "product/late.py": "",
    "product/named.py": "",
    "product/other.py": "",
    "data/file": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("changed", ["tests/test_good.py", "product/__init__.py", "product/late.py", "data/file"])
def test_a_change_of_anything_that_counts_asks_for_a_new_proof(root: Path, changed: str) -> None:
    """A change would break what its tests prove, and they would not run."""
    before = hash_of(root, PROOF)
    (root / changed).write_text(f"{FILES[changed]}#")

    assert before != hash_of(root, PROOF)


@pytest.mark.parametrize("changed", ["product/named.py", "product/other.py"])
def test_what_does_not_count_changes_nothing(root: Path, changed: str) -> None:
    """Each change of anything would run what depends on few files."""
    before = hash_of(root, PROOF)
    (root / changed).write_text("1")

    assert before == hash_of(root, PROOF)


def test_a_pattern_without_a_file_is_an_error(root: Path) -> None:
    """After a file is renamed, its changes would go unnoticed."""
    (root / "data/file").unlink()

    with pytest.raises(ValueError, match="data/"):
        hash_of(root, PROOF)


@pytest.mark.parametrize(
    ("inputs", "age", "expected"),
    [
        ("same", timedelta(0), True),
        ("same", VALID - timedelta(days=1), True),
        ("same", VALID, False),
        ("same", timedelta(days=-1), False),
        ("other", timedelta(0), False),
    ],
)
def test_a_proof_holds_for_a_while(inputs: str, age: timedelta, expected: bool) -> None:
    """A new lintian or Java would never be tried, or a proof would be made with every run."""
    assert expected == is_proved(inputs, Proved("same", (TODAY - age).isoformat()), TODAY)


def test_what_was_never_proved_is_not_proved() -> None:
    """A new proof would never be made."""
    assert not is_proved("same", None, TODAY)


def test_a_proof_is_made_once_and_a_failed_one_again(root: Path) -> None:
    """A failure would be taken for a proof, or end without being told."""
    ends, asked = [(1, False), (0, False), (0, True)], list[Sequence[str]]()

    def run(_: Path, tests: Sequence[str]) -> tuple[int, bool]:
        asked.append(tests)
        return ends[len(asked) - 1] if len(asked) <= len(ends) else (0, True)

    codes = [make_proofs(root, TODAY, run, all_anew=False) for _ in range(5)]
    record = read_record(root)
    make_proofs(root, TODAY + timedelta(days=1), run, all_anew=True)

    assert [1, 0, 0, 0, 0] == codes
    assert [PROOF.tests] * 4 == asked
    assert {"good": Proved(hash_of(root, PROOF), "2026-05-01")} == record
    assert "2026-05-02" == read_record(root)["good"].day


@pytest.mark.parametrize(
    ("body", "expected"),
    [("pass", (0, True)), ("pytest.skip()", (0, False)), ("assert False", (1, False))],
)
def test_only_a_run_in_which_all_passed_proves_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, expected: tuple[int, bool]
) -> None:
    """Where lintian or Java is missing, its tests would count as passed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(f"import pytest\n\ndef test_it():\n    {body}\n")

    assert expected == succeeds(tmp_path, ["test_it.py"])


def test_proofs_depend_on_little() -> None:
    """What depends on half of the product is proved again with every change, so that its place is
    in a ring."""
    proofs = read_proofs(ROOT)
    files = {proof.name: imported_files(ROOT, proof.tests) for proof in proofs}

    assert [64] * len(proofs) == [len(hash_of(ROOT, proof)) for proof in proofs]
    assert {} == {name: len(some) for name, some in files.items() if len(some) > 80}
