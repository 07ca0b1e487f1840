"""The Python API, against a real cluster, and the examples of its page."""

from __future__ import annotations

import asyncio
import doctest
import multiprocessing
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, NewCluster, make_source, picture

import torrentdist
from torrentdist import AsyncClient, Client, TorrentdistError, TransferProgress
from torrentdist.security.signing.signing_keys import NewKeyView, generate_key

PAGES = Path(__file__).parent.parent.parent / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def here(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory whose ./torrentdist.toml names the cluster."""
    for name in [name for name in os.environ if name.startswith("TORRENTDIST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    place = tmp_path / "here"
    place.mkdir()
    shutil.copy(cluster.dir / "client.toml", place / "torrentdist.toml")
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def bundle(cluster: Cluster, here: Path) -> Iterator[str]:
    """A bundle that masters hold and no host has."""
    name = f"api-{secrets.token_hex(4)}"
    torrentdist.upload(make_source(here / "source", seed=7), id=name)
    yield name
    Client().remove(name)


def run_page(page: Path) -> doctest.TestResults:
    """Runs the Python examples of a page, one after the other, in one namespace."""
    globs: dict[str, object] = {"__name__": "page"}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF)
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if ">>>" in block:
            example = doctest.DocTestParser().get_doctest(block, globs, page.name, str(page), None)
            runner.run(example, clear_globs=False)
            globs = example.globs
        else:
            exec(compile(block, str(page), "exec"), globs)
    return runner.summarize()


def test_the_examples_of_the_pages_work(cluster: Cluster, here: Path) -> None:
    """If this fails, a reader who copies an example of the documentation gets something else."""
    (here / "model").mkdir()
    (here / "model" / "config.json").write_text('{"layers": 12}')
    (here / "model" / "weights.bin").write_bytes(os.urandom(300_000))
    torrentdist.upload(make_sales(here / "sales"), id="sales-1")

    results = [run_page(PAGES / page) for page in ("python.md", "index.md", "fsspec.md")]

    for bundle in ("sales-1", "model-7", "model-8"):
        Client().remove(bundle)
    assert [0, 0, 0] == [result.failed for result in results]
    assert sum(result.attempted for result in results) > 18


def make_sales(top: Path) -> Path:
    """Writes the tables that docs/fsspec.md reads."""
    (top / "2026").mkdir(parents=True)
    (top / "2026" / "orders.csv").write_text("id,amount\n1,1\n2,2\n3,3\n")
    (top / "countries.csv").write_text("code,rate\nAT,20\nDE,9")
    return top


def test_a_path_is_the_directory_of_this_hosts_supervisor(cluster: Cluster, here: Path, bundle: str) -> None:
    """If this fails, each program keeps a copy of its own of what the host already has."""
    found = torrentdist.path(bundle)

    assert found.is_relative_to(cluster.dir)
    assert picture(here / "source") == picture(found)


def test_without_a_supervisor_a_path_is_a_read_only_directory_in_the_cache(here: Path, bundle: str) -> None:
    """If this fails, `path` needs a daemon, or one program's edit becomes another one's content."""
    client = Client(supervisor="")

    first, again = client.path(bundle), client.path(bundle)

    assert first == again
    assert first.is_relative_to(os.environ["XDG_CACHE_HOME"])
    assert picture(here / "source") == picture(first)
    assert not [path for path in first.rglob("*") if path.is_file() and path.stat().st_mode & 0o222]


def test_a_cached_bundle_that_was_changed_is_fetched_again(here: Path, bundle: str) -> None:
    """If this fails, damage in the cache is handed out as the bundle."""
    client = Client(supervisor="")
    data = client.path(bundle) / "data.bin"
    data.chmod(0o644)
    with data.open("r+b") as file:
        file.write(b"damage")

    again = client.path(bundle)

    assert picture(here / "source") == picture(again)


def test_a_cached_bundle_is_there_when_no_master_answers(new_cluster: NewCluster, tmp_path: Path) -> None:
    """If this fails, a program stops with the masters although this host has what it needs."""
    cluster = new_cluster(masters=1, supervisors=0)
    config = cluster.dir / "client.toml"
    Client(config_file=config).upload(make_source(tmp_path / "source", seed=8), id="kept")
    client = Client(supervisor="", config_file=config, settings={"client.deadline_secs": 3.0})
    there = client.path("kept")
    cluster.kill(*cluster.masters())

    assert there == client.path("kept")
    with pytest.raises(TorrentdistError) as caught:
        client.path("never-asked-for")
    assert "unreachable" == caught.value.code


@pytest.mark.case("F12")
def test_a_signed_bundle_of_the_cache_is_checked_again_when_no_master_answers(
    new_cluster: NewCluster, tmp_path: Path
) -> None:
    """If this fails, a program that wants signatures stops with the masters, although the bundle
    and its signatures are on this disk; or it takes content that nobody has signed."""
    cluster = new_cluster(masters=1, supervisors=0)
    own, other = (generate_key(tmp_path / name) for name in ("own", "other"))
    plain = cluster.dir / "client.toml"

    def trusting(key: NewKeyView) -> Client:
        rule = f'[trust.bundles."*"]\nmode = "enforce"\nkeys = ["{key.public_key}"]\n'
        config = tmp_path / f"{key.id}.toml"
        config.write_text(plain.read_text() + rule)
        return Client(supervisor="", config_file=config, settings={"client.deadline_secs": 3.0})

    client = trusting(own)
    client.upload(make_source(tmp_path / "source", seed=9), id="signed", sign=own.key_file)
    there = client.path("signed")
    cluster.kill(*cluster.masters())

    assert there == client.path("signed")
    with pytest.raises(TorrentdistError) as caught:
        trusting(other).path("signed")
    assert "unknown_key" == caught.value.code


def test_the_timeout_counts_while_known_files_are_read(here: Path, bundle: str) -> None:
    """If this fails, a download from a slow disk or with a large older version ends long after its
    deadline."""
    with pytest.raises(TorrentdistError) as caught:
        Client(supervisor="").download(bundle, here / "dest", known_in=[here / "source"], timeout=0.001)
    again = Client(supervisor="").download(bundle, here / "dest", known_in=[here / "source"])

    assert "timed_out" == caught.value.code
    assert again.size == again.sources.local
    assert picture(here / "source") == picture(here / "dest")


def test_many_threads_get_one_copy(here: Path, bundle: str) -> None:
    """If this fails, two threads that ask at once disturb each other's download."""
    client = Client(supervisor="")
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(client.path, [bundle] * 4))

    assert 1 == len(found)
    assert picture(here / "source") == picture(found.pop())


def _in_child(bundle: str, results: multiprocessing.SimpleQueue[str]) -> None:
    results.put(str(torrentdist.path(bundle)))


def test_a_forked_child_can_call_too(here: Path, bundle: str) -> None:
    """If this fails, a program that used the API before it forked hangs in its children."""
    here_path = torrentdist.path(bundle)
    context = multiprocessing.get_context("fork")
    results: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(bundle, results))
    child.start()
    child.join(60)

    assert 0 == child.exitcode
    assert str(here_path) == results.get()


@pytest.mark.anyio
async def test_a_blocking_call_works_where_an_event_loop_runs(here: Path, bundle: str) -> None:
    """If this fails, the API does not work in a notebook."""
    assert bundle == torrentdist.Client().bundle(bundle).id


@pytest.mark.anyio
async def test_a_cancelled_call_ends_at_once_and_leaves_no_thread(here: Path, bundle: str) -> None:
    """If this fails, a cancelled download goes on in the background."""
    before = threading.active_count()
    client = AsyncClient(supervisor="", settings={"swarm.download_limit": 20_000})
    call = asyncio.create_task(client.download(bundle, here / "copy"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert threading.active_count() <= before + 1  # the loop's own pool
    assert not (here / "copy").exists()


def test_progress_reports_reach_a_function(here: Path, bundle: str) -> None:
    """If this fails, a program cannot show how far its download is."""
    reports: list[TransferProgress] = []

    view = Client(supervisor="").download(bundle, here / "copy", progress=reports.append)

    assert view.size == reports[-1].done


def test_too_few_replicas_are_an_error_with_the_result(here: Path, bundle: str) -> None:
    """If this fails, a program takes an upload for done that one disk failure can undo."""
    with pytest.raises(TorrentdistError) as caught:
        torrentdist.upload(here / "source", id=bundle, min_replicas=9, timeout=0.5)

    assert "partly" == caught.value.code
    assert bundle == caught.value.extra["result"].id
    assert caught.value.hint


def test_an_error_of_the_system_is_an_error_of_the_table(here: Path, bundle: str) -> None:
    """If this fails, a program has to know which exceptions each library raises."""
    (here / "file").write_text("no directory")
    with pytest.raises(TorrentdistError) as caught:
        Client(supervisor="").download(bundle, here / "file" / "below")

    assert "disk_error" == caught.value.code


def test_a_wrong_setting_is_an_error_with_its_place(here: Path) -> None:
    """If this fails, a typing error in an argument is found only in production."""
    with pytest.raises(TorrentdistError) as caught:
        Client(settings={"client.mastrs": []}).bundles()

    assert "config_invalid" == caught.value.code
