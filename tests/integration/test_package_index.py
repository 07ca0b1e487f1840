"""Bundles as package indexes on the gateway of a real host, read by the real pip and uv."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import uv
from cluster_fixtures import Cluster, NewCluster, running_cluster, until
from package_files import make_sdist, make_wheel
from page_sessions import blocks_of, run_block

JSON = "application/vnd.pypi.simple.v1+json"
Put = Callable[[Path], str]
"""Uploads a directory, and returns the id of its bundle."""
Install = Callable[..., subprocess.CompletedProcess[str]]
MiB = 1024 * 1024


@pytest.fixture
def put(cluster: Cluster) -> Put:
    def upload(source: Path) -> str:
        name = f"wheels-{secrets.token_hex(4)}"
        cluster.upload(source, name)
        return name

    return upload


def index_url(cluster: Cluster, bundle: str) -> str:
    return f"{cluster.url('supervisor-1')}/simple/{bundle}/"


def get(url: str, accept: str = JSON) -> httpx.Response:
    return httpx.get(url, headers={"accept": accept}, trust_env=False, timeout=60.0, follow_redirects=True)


def run(*command: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs an installer that knows no settings of this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "TORRENTDIST_"))}
    kept |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INPUT": "1", "NO_COLOR": "1", **env}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, env=kept, check=False)


@pytest.fixture(params=["pip", "uv"])
def install(request: pytest.FixtureRequest, tmp_path: Path) -> Install:
    """Installs packages from an index into tmp_path/site with one of the two installers."""

    def with_pip(url: str, *packages: str) -> subprocess.CompletedProcess[str]:
        options = ["--target", tmp_path / "site", "--no-cache-dir", "--disable-pip-version-check"]
        return run(sys.executable, "-m", "pip", "install", "-v", *options, *packages, PIP_INDEX_URL=url)

    def with_uv(url: str, *packages: str) -> subprocess.CompletedProcess[str]:
        options = ["--target", tmp_path / "site", "--python", sys.executable, "--no-config", "-v"]
        cache = str(tmp_path / "uv-cache")
        return run(uv.find_uv_bin(), "pip", "install", *options, *packages, UV_DEFAULT_INDEX=url, UV_CACHE_DIR=cache)

    return with_pip if request.param == "pip" else with_uv


by_uv = pytest.mark.parametrize("install", ["uv"], indirect=True)
"""For what depends on our answers alone: pip takes a second of processor time to start."""


def value_of(site: Path, module: str) -> str:
    found = re.fullmatch(r"VALUE = '(.*)'\n", (site / f"{module}.py").read_text())
    assert found is not None
    return found[1]


def test_a_package_and_what_it_needs_are_installed(
    cluster: Cluster, put: Put, install: Install, tmp_path: Path
) -> None:
    """If this fails, nobody can install from a bundle."""
    make_wheel(tmp_path / "in" / "apps", "My.App", "2.0+local.1", requires=["the-lib>=1"], value="app")
    make_wheel(tmp_path / "in" / "libs" / "old", "the-lib", "1.0", value="old")
    make_wheel(tmp_path / "in" / "libs" / "new", "the-lib", "1.1", value="new")
    make_wheel(tmp_path / "in" / "libs" / "new", "the-lib", "9.0", python=">=9")
    (tmp_path / "in" / "README.md").write_text("no distribution")

    ran = install(index_url(cluster, put(tmp_path / "in")), "my_app")

    assert 0 == ran.returncode, ran.stderr
    assert ["app", "new"] == [value_of(tmp_path / "site", name) for name in ("my_app", "the_lib")]


def test_a_wheel_of_a_name_with_odd_characters_is_installed(
    cluster: Cluster, put: Put, install: Install, tmp_path: Path
) -> None:
    """If this fails, an epoch, a local version or a capital letter hides a wheel."""
    wheel = make_wheel(tmp_path / "in" / "a b" / "ü#?&", "odd", "1!2.0+cu118.a", value="odd")
    for name in ("a<b>-1-py3-none-any.whl", "we ird-1.tar.gz", "..whl", "-1-.whl", "100%-1-py3-none-any.whl"):
        (wheel.parent / name).write_bytes(wheel.read_bytes())
    url = index_url(cluster, put(tmp_path / "in"))

    ran = install(url, "Odd")

    assert 0 == ran.returncode, ran.stderr
    assert "odd" == value_of(tmp_path / "site", "odd")
    assert [{"name": "odd"}] == get(url).json()["projects"]


def test_a_wrong_hash_is_refused(battered: Cluster, install: Install, tmp_path: Path) -> None:
    """If this fails, what lies beside the store decides what is installed."""
    make_wheel(tmp_path / "in", "pinned")
    bundle = f"wheels-{secrets.token_hex(4)}"
    battered.upload(tmp_path / "in", bundle)
    url = index_url(battered, bundle)
    page = get(f"{url}pinned/").json()
    right = page["files"][0]["hashes"]["sha256"]
    (facts,) = [path for path in battered.dir.rglob("file-facts/*.jsonl") if right in path.read_text()]
    battered.kill("supervisor-1")
    facts.write_text(facts.read_text().replace(f'"value":"{right}"', f'"value":"{"0" * 64}"'))
    battered.start("supervisor-1")
    url = index_url(battered, bundle)

    ran = install(url, "pinned")

    assert "0" * 64 == get(f"{url}pinned/").json()["files"][0]["hashes"]["sha256"]
    assert 0 != ran.returncode
    assert "hash" in ran.stderr.lower() + ran.stdout.lower()
    assert not (tmp_path / "site" / "pinned.py").exists()


@by_uv
def test_a_wheel_that_was_damaged_before_the_upload_is_refused(
    cluster: Cluster, put: Put, install: Install, tmp_path: Path
) -> None:
    """If this fails, one damaged wheel makes an error of its page, or is installed."""
    whole = make_wheel(tmp_path / "in", "fine", "1.0", value="fine")
    damaged = make_wheel(tmp_path / "in", "fine", "1.1")
    damaged.write_bytes(damaged.read_bytes()[:-40])
    url = index_url(cluster, put(tmp_path / "in"))

    refused = install(url, "fine==1.1")
    ran = install(url, "fine==1.0")

    assert 0 != refused.returncode
    assert 0 == ran.returncode, ran.stderr
    assert "fine" == value_of(tmp_path / "site", "fine")
    assert whole.name in get(f"{url}fine/", "text/html").text


@by_uv
def test_what_was_damaged_on_this_host_is_not_installed(
    cluster: Cluster, put: Put, install: Install, tmp_path: Path
) -> None:
    """E5: if this fails, a host installs what somebody wrote into its store."""
    make_wheel(tmp_path / "in", "kept", value="right")
    bundle = put(tmp_path / "in")
    cluster.run("bundle", "distribute", bundle).ok()
    view = httpx.get(f"{cluster.url('supervisor-1')}/bundles/{bundle}", trust_env=False, timeout=60.0).json()
    (stored,) = Path(view["path"]).glob("*.whl")
    stored.chmod(0o644)
    stored.write_bytes(make_wheel(tmp_path / "evil", "kept", value="evil!").read_bytes())

    ran = install(index_url(cluster, bundle), "kept")

    assert 0 == ran.returncode, ran.stderr
    assert "right" == value_of(tmp_path / "site", "kept")


@by_uv
def test_a_bundle_without_distributions_is_an_empty_index(
    cluster: Cluster, put: Put, install: Install, tmp_path: Path
) -> None:
    """If this fails, an extra index that has nothing breaks an installation from others."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "data.bin").write_bytes(b"data")
    url = index_url(cluster, put(tmp_path / "in"))

    ran = install(url, "anything")

    assert [] == get(url).json()["projects"]
    assert 404 == get(f"{url}anything/").status_code
    assert 0 != ran.returncode


@by_uv
def test_an_unknown_bundle_is_not_found(cluster: Cluster, install: Install) -> None:
    """If this fails, a wrong id looks like a slow index."""
    url = index_url(cluster, "no-such-bundle")

    ran = install(url, "anything")

    assert [404, "bundle_not_found"] == [get(url).status_code, get(f"{url}x/").json()["error"]]
    assert 0 != ran.returncode
    assert 404 == get(index_url(cluster, "%2e%2e")).status_code or 400 == get(index_url(cluster, "%2e%2e")).status_code


def test_nothing_else_is_reached_through_the_index(cluster: Cluster, put: Put, tmp_path: Path) -> None:
    """If this fails, a path leads out of the bundle, or to files that are no distributions."""
    wheel = make_wheel(tmp_path / "in", "x")
    (tmp_path / "in" / "secret.txt").write_text("secret")
    url = index_url(cluster, put(tmp_path / "in"))

    for path in ("secret.txt", "..%2fsecret.txt", "%2e%2e%2f%2e%2e%2fmetafile", "x/secret.txt", "x/..%2f..%2fmetafile",
                 f"y/{wheel.name}", "x/x.whl", f"x/{wheel.name}.metadata.metadata", "x/none.metadata"):  # fmt: skip
        assert 404 == get(url + path).status_code, path
    assert 200 == get(f"{url}X/{wheel.name}").status_code


def test_the_answers_tell_clients_all_that_they_need(cluster: Cluster, put: Put, tmp_path: Path) -> None:
    """If this fails, clients download whole wheels to read their metadata, or cannot use ranges."""
    wheel = make_wheel(tmp_path / "in", "x", python=">=3.8")
    make_sdist(tmp_path / "in", "x", "2.0", python=">=3.9")
    url = index_url(cluster, put(tmp_path / "in"))

    page = get(f"{url}x/")
    sdist, found = sorted(page.json()["files"], key=lambda file: str(file["filename"]))
    sdist, found = (found, sdist) if found["filename"].endswith(".gz") else (sdist, found)
    metadata = get(f"{url}x/{found['url']}.metadata")
    part = httpx.get(f"{url}x/{found['url']}", headers={"range": "bytes=-22"}, trust_env=False, timeout=60.0)
    again = httpx.get(
        f"{url}x/", headers={"accept": JSON, "if-none-match": page.headers["etag"]}, trust_env=False, timeout=60.0
    )

    assert JSON == page.headers["content-type"].partition(";")[0]
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == found["hashes"]["sha256"]
    assert hashlib.sha256(metadata.content).hexdigest() == found["core-metadata"]["sha256"]
    assert [">=3.8", ">=3.9"] == [found["requires-python"], sdist["requires-python"]]
    assert (206, wheel.read_bytes()[-22:]) == (part.status_code, part.content)
    assert [304, "text/html"] == [again.status_code, get(url, "text/html").headers["content-type"].partition(";")[0]]
    assert 200 == httpx.get(url.rstrip("/"), trust_env=False, timeout=60.0, follow_redirects=True).status_code


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose only master sends slowly."""
    settings = {"swarm": {"upload_limit": 3 * MiB, "seeding_secs": 2.0}}
    with running_cluster(settings, work=tmp_path_factory.mktemp("slow"), masters=1, supervisors=1) as cluster:
        yield cluster


@by_uv
def test_a_package_is_installed_while_its_bundle_arrives(slow: Cluster, install: Install, tmp_path: Path) -> None:
    """If this fails, an installation waits for all of a large bundle. It takes long: an installer
    makes an environment."""
    make_wheel(tmp_path / "in", "early", value="early")
    (tmp_path / "in" / "large.bin").write_bytes(os.urandom(120 * MiB))
    name = f"arriving-{secrets.token_hex(4)}"
    digest = slow.upload(tmp_path / "in", name, replicas=1)["digest"]

    ran = install(index_url(slow, name), "early")
    arrived = slow.published("supervisor-1", digest)
    slow.run("bundle", "rm", name).ok()

    assert 0 == ran.returncode, ran.stderr
    assert "early" == value_of(tmp_path / "site", "early")
    assert not arrived


def test_a_page_that_waits_for_its_files_is_whole_in_the_end(slow: Cluster, tmp_path: Path) -> None:
    """If this fails, a client gives up on a large wheel, or sees it without its hash."""
    (tmp_path / "in").mkdir()
    data = os.urandom(25 * MiB)
    (tmp_path / "in" / "big-1-py3-none-any.whl").write_bytes(data)
    name = f"arriving-{secrets.token_hex(4)}"
    slow.upload(tmp_path / "in", name, replicas=1)

    page = get(f"{index_url(slow, name)}big/")

    assert page.content.startswith(b" ")  # it began before the wheel was here
    assert hashlib.sha256(data).hexdigest() == page.json()["files"][0]["hashes"]["sha256"]


def test_another_user_may_not_read(new_cluster: NewCluster, tmp_path: Path) -> None:
    """F5: if this fails, gateway_users does not hold for the index."""
    cluster = new_cluster(masters=1, supervisors=1)
    make_wheel(tmp_path / "in", "x")
    cluster.upload(tmp_path / "in", "x-1", replicas=1)
    cluster.reconfigure("supervisor-1", {"supervisor": {"gateway_users": ["nobody"]}})
    until(lambda: get(f"{cluster.url('supervisor-1')}/livez").status_code == 200, "the gateway answers")

    assert {403} == {
        get(index_url(cluster, "x-1") + path).status_code for path in ("", "x/", "x/x-1.0-py3-none-any.whl")
    }
    assert 403 == get(f"{cluster.url('supervisor-1')}/maven/x-1/x.jar").status_code


def test_the_session_of_the_page_works(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, a reader of docs/package-indexes.md cannot install what it installs. It takes
    long: each command of the page is a process."""
    make_wheel(tmp_path / "wheels", "my-app", requires=["my-lib"], value="app")
    make_wheel(tmp_path / "wheels" / "libs", "my-lib")
    shutil.copy(cluster.dir / "client.toml", tmp_path / "torrentdist.toml")
    run(uv.find_uv_bin(), "venv", "--no-config", "--python", sys.executable, tmp_path / "venv")
    env = {
        "PIP_TARGET": str(tmp_path / "site"),
        "PIP_NO_CACHE_DIR": "1",
        "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
        "VIRTUAL_ENV": str(tmp_path / "venv"),
    }

    blocks = blocks_of("package-indexes.md", "sh", part="Python packages")
    ran = [run_block(block, cluster.url("supervisor-1"), tmp_path, **env) for block in blocks]

    assert [0, 0, 0] == [one.returncode for one in ran], [one.stderr for one in ran]
    (with_uv,) = (tmp_path / "venv").glob("lib/*/site-packages/my_app.py")
    assert ["app", "app"] == [value_of(site, "my_app") for site in (tmp_path / "site", with_uv.parent)]
