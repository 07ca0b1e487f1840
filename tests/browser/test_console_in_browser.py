"""The console in a real browser: signing in, figures that move, refusals, a failover, and pages
that everybody can use.

CONSOLE_PICTURES=docs/images keeps the pictures that docs/console.md shows.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from chromium import PROGRAM, Chromium, Tab, running_chromium
from cluster_fixtures import Cluster, make_source, running_cluster, until

from torrentdist.master.console.forms.actions import ACTIONS

pytestmark = pytest.mark.skipif(not PROGRAM, reason="Chromium is not installed")

AXE = Path(__file__).parents[2] / ".venv" / "share" / "torrentdist" / "axe.min.js"
HOSTS = 30
PAGES = (
    "/ui/",
    "/ui/bundles",
    "/ui/bundles/etl-42",
    "/ui/distributions",
    "/ui/distributions/{run}",
    "/ui/hosts",
    "/ui/hosts/supervisor-1",
    "/ui/masters",
    "/ui/masters/master-1",
    "/ui/jobs",
    "/ui/jobs/talk",
    "/ui/jobs/talk/output",
    "/ui/events",
    "/ui/retention",
    "/ui/tokens",
    "/ui/certificates",
    "/ui/bundles/etl-42/distribute?look=1",
    "/ui/no-such-page",
)
SUBJECTS = {
    "bundles": "etl-42", "jobs": "talk", "hosts": "supervisor-1", "masters": "master-1",
    "tokens": "operator", "certificates": "supervisor-1", "retention": "etl-*",
}  # fmt: skip
FORMS = tuple(f"/ui/{action.kind}/{SUBJECTS[action.kind]}/{action.name}" for action in ACTIONS)
TALK = 'name = "talk"\ncommand = ["sh", "-c", "echo it runs; sleep 600"]\nworkers = 1\n'
NARROW = 400
TAB_KEY = 9
MOST_PICTURE_BYTES = 100_000
WRONG = (
    "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => v.id + ' ' + v.nodes[0].html))"
)
COUNT_SOURCES = (
    "window.sources = []; const Plain = EventSource;"
    "window.EventSource = class extends Plain { constructor(url) { super(url); sources.push(this); } };"
)
SHOWN_OR_NOT = (
    "Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}});"
    "document.dispatchEvent(new Event('visibilitychange'))"
)
WIDEST = (
    "Math.max(...[document.documentElement, ...document.querySelectorAll('.table')]"
    ".map(e => innerWidth - e.clientWidth + e.scrollWidth))"
)
"""The width of the page, or of the widest table if that has to be moved from side to side."""
DONE = "document.querySelector('[data-live] .tiles dd').innerText"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of three masters, one real host and simulated ones, with a job and a distribution
    that is over."""
    work = tmp_path_factory.mktemp("browsed")
    with running_cluster(work=work, masters=3, supervisors=1, simulate=HOSTS) as running:
        running.upload(make_source(work / "etl-42", 1), "etl-42", replicas=3)
        running.upload(make_source(work / "features", 2), "features", replicas=3)
        job = make_source(work / "talk", 3)
        (job / "job.toml").write_text(TALK)
        running.upload(job, "talk", replicas=3)
        running.run("bundle", "distribute", "talk", "--supervisors", "supervisor-1", "--wait", "100%").ok()
        running.run("job", "submit", "talk").ok()
        for pattern in ("etl-*", "features-of-a-team-with-a-long-name-*"):
            running.run("bundle", "retention", pattern, "--keep", 3).ok()
        until(lambda: len(running.run("supervisor", "ls").ok()) == HOSTS + 1, "all hosts are registered", 60)
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with running_chromium() as browser:
        yield browser


def signed_in(browser: Chromium, cluster: Cluster, master: str, role: str) -> Tab:
    """Returns a tab in which somebody of this role has signed in by the form."""
    name = f"{role}-{os.urandom(3).hex()}"
    token = cluster.run("token", "create", name, "--role", role).ok()["token"]
    tab = browser.open()
    tab.go(f"{cluster.url(master)}/ui/")
    assert "Your token" in tab.text()
    tab.value(f"document.querySelector('#token').value = {token!r}")
    tab.submit("document.querySelector('.sign-in button').click()")
    return tab


def keep(name: str, tab: Tab) -> None:
    """Keeps a picture for the documentation, if asked to."""
    folder, picture = os.environ.get("CONSOLE_PICTURES"), tab.picture()
    assert len(picture) > 5_000, f"the page of {name} is empty"
    if folder:
        assert len(picture) < MOST_PICTURE_BYTES, f"{name} has {len(picture):,} bytes"
        Path(folder).mkdir(exist_ok=True)
        (Path(folder) / f"console-{name}.png").write_bytes(picture)


def test_a_distribution_moves_without_reload(chromium: Chromium, cluster: Cluster) -> None:
    """An operator would look at figures that stand still, and reload to see whether it goes on. It
    takes long: a browser draws it while a bundle travels."""
    tab = signed_in(chromium, cluster, cluster.leader(), "reader")
    tab.until("document.body.innerText.includes('All is well')", "all is well")
    cluster.run("bundle", "distribute", "etl-42", "--wait", "0").ok()
    tab.go(f"{cluster.url(cluster.leader())}/ui/bundles/etl-42")
    tab.value("window.first = " + DONE)
    tab.until(f"{DONE} !== window.first && {DONE} !== '0 of {HOSTS + 1}'", "more hosts have it")
    tab.until(f"parseInt({DONE}) >= {HOSTS // 4}", "a quarter has it", 60)
    strips = tab.value("document.querySelectorAll('[data-live] svg.strip').length")
    tab.size(1000, 820)
    keep("distribution", tab)
    tab.go(f"{cluster.url(cluster.leader())}/ui/")
    tab.scheme("dark")
    tab.until("document.querySelector('svg.strip') !== null", "the overview shows it")
    keep("dark", tab)
    tab.size(NARROW, 900)
    tab.scheme("light")
    keep("narrow", tab)

    assert strips == HOSTS + 1


def test_a_hidden_page_asks_its_master_for_nothing(chromium: Chromium, cluster: Cluster) -> None:
    """Pages in forgotten tabs would cost their master as much as those that somebody reads."""
    tab = signed_in(chromium, cluster, cluster.leader(), "reader")
    tab.call("Page.addScriptToEvaluateOnNewDocument", source=COUNT_SOURCES)
    tab.go(f"{cluster.url(cluster.leader())}/ui/")
    tab.until("sources.length === 1 && sources[0].readyState === EventSource.OPEN", "the page is live")
    tab.value(SHOWN_OR_NOT.format(hidden="true"))
    hidden = tab.value("sources.map(source => source.readyState === EventSource.CLOSED)")
    tab.value(SHOWN_OR_NOT.format(hidden="false"))
    tab.until("sources.length === 2 && sources[1].readyState === EventSource.OPEN", "the page is live again")

    assert [True] == hidden


def test_a_page_whose_master_is_dead_says_so(chromium: Chromium, cluster: Cluster) -> None:
    """If this fails, an open page goes on saying that all is well, hours after its master died. It
    takes long: a browser waits until a page gives up."""
    standby, other = cluster.standbys()
    tab = signed_in(chromium, cluster, standby, "reader")
    tab.until("document.querySelector('.age').innerText.startsWith('Updated ')", "it tells its age")
    cluster.dev.signal(standby, signal.SIGSTOP)
    try:
        tab.until("document.querySelector('[data-live]').classList.contains('late')", "it is grey", 30)
        told = tab.text()
    finally:
        cluster.dev.signal(standby, signal.SIGCONT)
    tab.until("!document.querySelector('[data-live]').classList.contains('late')", "it is live again", 60)

    assert f"{standby} does not answer, so this page is old." in told
    assert other in told
    assert cluster.url(other) in tab.value("document.querySelector('[data-late]').innerHTML")


def test_a_role_that_may_not_is_refused(chromium: Chromium, cluster: Cluster) -> None:
    """A reader would press a button that does what only operators may, or one that always
    fails."""
    leader = cluster.leader()
    reader = signed_in(chromium, cluster, leader, "reader")
    reader.go(f"{cluster.url(leader)}/ui/bundles/features")
    offered = reader.value("document.querySelectorAll('.actions a').length")
    reader.go(f"{cluster.url(leader)}/ui/bundles/features/pin")
    told = reader.text()
    forced = reader.value(
        "fetch(location.href, {method: 'POST', headers: {'content-type': 'application/x-www-form-urlencoded'}})"
        ".then(r => r.status)"
    )

    assert offered == 0
    assert "needs the role operator" in told
    assert reader.value("document.querySelector('form.confirm')") is None
    assert forced == 403


def test_an_operator_changes_what_the_state_allows(chromium: Chromium, cluster: Cluster) -> None:
    """A change would not ask, or the page would offer to pin what is pinned."""
    leader = cluster.leader()
    tab = signed_in(chromium, cluster, leader, "operator")
    page = f"{cluster.url(leader)}/ui/bundles/features"
    names = "[...document.querySelectorAll('.actions a')].map(a => a.innerText)"
    tab.go(page)
    before = tab.value(names)
    tab.submit("[...document.querySelectorAll('.actions a')].find(a => a.innerText === 'pin').click()")
    asked = tab.text()
    tab.submit("document.querySelector('form.confirm button').click()")

    assert before == ["distribute", "pin", "remove"]
    assert "torrentdist bundle pin features" in asked
    assert tab.value(names) == ["distribute", "unpin"]


@pytest.fixture(scope="module")
def axe() -> str:
    """The script that looks for what keeps people from using a page."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: scripts/setup gets it with npm")
    return AXE.read_text()


def every_page(cluster: Cluster) -> Iterator[str]:
    """Returns the path of each kind of page, and of each form."""
    [run] = [one["run"] for one in cluster.get(cluster.leader(), "/v1/distributions") if one["bundle"] == "talk"]
    return (page.format(run=run) for page in (*PAGES, *FORMS))


@dataclass
class Looked:
    """What was seen of all pages."""

    barriers: dict[str, Any] = field(default_factory=dict)
    """What axe-core finds wrong, by page and look."""
    wide: dict[str, int] = field(default_factory=dict)
    """Widths of the pages that are wider than a telephone."""
    texts: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def looked(chromium: Chromium, cluster: Cluster) -> Looked:
    """Opens every page once, and looks at it light and wide, and dark and narrow: each colour and
    each layout is seen."""
    leader = cluster.leader()
    tab = signed_in(chromium, cluster, leader, "operator")
    found, axe = Looked(), AXE.read_text() if AXE.exists() else ""
    for page in every_page(cluster):
        tab.go(cluster.url(leader) + page)
        if axe:
            tab.value(axe)
        for scheme, width in (("light", 1200), ("dark", NARROW)):
            tab.scheme(scheme)
            tab.size(width, 900)
            if axe and (wrong := tab.value(WRONG)):
                found.barriers[f"{page} {scheme} {width}"] = wrong
        found.texts.append(tab.text())
        if (widest := tab.value(WIDEST)) > NARROW:
            found.wide[page] = widest
    return found


@pytest.mark.usefixtures("axe")
def test_pages_suit_everybody(looked: Looked) -> None:
    """People who cannot see well, or use a program that reads pages to them, could not use the
    console."""
    assert {} == looked.barriers


def test_pages_fit_a_telephone(looked: Looked) -> None:
    """Somebody who is called at night would have to move each page, or the tables of hosts and
    rules, from side to side."""
    assert {} == looked.wide
    assert 1 == sum("It did not work" in text for text in looked.texts)  # the page that does not exist
    assert any("Hosts over time" in text for text in looked.texts)


def test_the_keyboard_skips_the_navigation(chromium: Chromium, cluster: Cluster) -> None:
    """Somebody without a mouse would go through all links of the frame on each page."""
    leader = cluster.leader()
    tab = signed_in(chromium, cluster, leader, "operator")
    tab.go(f"{cluster.url(leader)}/ui/")
    tab.press("Tab", TAB_KEY)

    assert tab.value("document.activeElement.className") == "skip"


def test_the_sign_in_page_suits_everybody(chromium: Chromium, cluster: Cluster, axe: str) -> None:
    """Somebody could not even begin."""
    tab = chromium.open()
    tab.go(f"{cluster.url('master-1')}/ui/")
    tab.value(axe)

    assert tab.value(WRONG) == []


def test_the_sign_in_page_waits_for_the_token(chromium: Chromium, cluster: Cluster) -> None:
    """Somebody would have to look for the field before each session."""
    tab = chromium.open()
    tab.go(f"{cluster.url('master-1')}/ui/")

    assert tab.value("document.activeElement.id") == "token"


def test_a_session_survives_a_failover(chromium: Chromium, cluster: Cluster) -> None:
    """During a failover, of all times, the operator would have to look for a token."""
    before = cluster.leader()
    tab = signed_in(chromium, cluster, before, "operator")
    cluster.dev.signal(before, signal.SIGKILL)
    now = cluster.leader()
    tab.go(f"{cluster.url(now)}/ui/")
    shown = tab.text()
    cluster.start(before)

    assert "Overview" in shown
    assert now in shown
    assert "Your token" not in shown
