"""The command of spark-submit holds what the user gave and what the engine needs, whatever that
is."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.spark.submission.submit_arguments import SWITCHES, WITH_VALUE, SparkArguments, split_arguments
from torrentdist.spark.submission.submit_plan import (
    DRIVER_PYTHON,
    SubmitRequest,
    hosts_to_wait_for,
    plan_command,
    program_of,
)

IDS_DIR = "/var/lib/torrentdist/ids"
OWN = {"--env": True, "--bundle": True, "--print": False, "-h": False, "--help": False}
words = st.text("abc=.,-/ '$\"", min_size=1, max_size=8)
switches = st.sampled_from(sorted(SWITCHES - OWN.keys())).map(lambda name: (name,))
options = st.tuples(st.sampled_from(sorted(WITH_VALUE)), words) | switches
joined = st.tuples(st.sampled_from(sorted(name for name in WITH_VALUE if name != "-c")), words).map(
    lambda pair: (f"{pair[0]}={pair[1]}",)
)
own_options = st.tuples(st.sampled_from(["--env", "--bundle"]), words) | st.just(("--print",))
masters = st.sampled_from(["local[2]", "spark://h:7077", "yarn", "k8s://https://h:6443", "local-cluster[2,1,768]"])
modes = st.sampled_from(["", "client", "cluster"])
ids = st.sampled_from([BundleId(name) for name in ("env-43", "model-7", "x")])
keys = ["spark.pyspark.python", "spark.executorEnv.TORRENTDIST_ENV", "spark.yarn.am.waitTime", "spark.x"]


@st.composite
def requests(draw: st.DrawFn) -> SubmitRequest:
    given_options = ["--master", draw(masters)]
    if mode := draw(modes):
        given_options += ["--deploy-mode", mode]
    for key, value in draw(st.dictionaries(st.sampled_from(keys), words)).items():
        given_options += ["--conf", f"{key}={value}"]
    application = draw(st.sampled_from(["app.py", "hdfs:///x/app.py", "app.jar"]))
    arguments = [*given_options, application, *draw(st.lists(words))]
    spark = split_arguments(arguments, OWN).spark
    env = draw(st.none() | ids) if application.endswith(".py") else None
    return SubmitRequest(
        spark=spark, env=env, bundles=tuple(draw(st.lists(ids, max_size=2))), ids_dir=IDS_DIR, program="spark-submit"
    )


def settings_of(command: list[str]) -> Mapping[str, str]:
    return split_arguments(command[1:], OWN).spark.conf


@given(st.lists(options | joined), st.lists(own_options), st.lists(words), st.data())
def test_each_argument_of_spark_is_handed_on(
    spark: list[tuple[str, ...]], own: list[tuple[str, ...]], arguments: list[str], data: st.DataObject
) -> None:
    """An application would start with other options than its user wrote, or with other
    arguments."""
    mixed = data.draw(st.permutations([*spark, *own]))
    in_order = [option for option in mixed if option in spark and option not in own]
    split = split_arguments([part for option in mixed for part in option] + ["app.py", *arguments], OWN)
    flat = [part for option in in_order for part in (option[0].split("=", 1) if len(option) == 1 else option)]

    assert flat == list(split.spark.options)
    assert ("app.py", tuple(arguments)) == (split.spark.application, split.spark.arguments)
    assert sorted(part for option in own for part in option) == sorted(split.own)


@given(requests())
def test_what_the_user_sets_wins(request: SubmitRequest) -> None:
    """A user who knows better could not say so."""
    command = plan_command(request).command
    rest = [*request.spark.options, request.spark.application, *request.spark.arguments]

    before = settings_of(command[: -len(rest)])

    assert rest == command[-len(rest) :]
    assert before.keys().isdisjoint(request.spark.conf)
    assert request.spark.conf.items() <= settings_of(command).items()


@given(requests())
def test_every_process_knows_its_bundles(request: SubmitRequest) -> None:
    """An executor or a driver would run the wrong Python, or fail where its bundle has not come."""
    view = plan_command(request)
    conf, mine = settings_of(view.command), request.spark.conf
    drives_here = "cluster" not in request.spark.options or request.master == "local[2]"
    places = {"yarn": "spark.yarn.appMasterEnv.", "k8s:": "spark.kubernetes.driverEnv."}
    place = places.get(request.master[:4])
    in_pods = place == "spark.kubernetes.driverEnv."
    expected = {
        "TORRENTDIST_ENV": request.env or "",
        "TORRENTDIST_BUNDLES": ",".join(request.bundles),
        "TORRENTDIST_IDS_DIR": "" if request.is_python else IDS_DIR,
    }

    for name, value in expected.items():
        key = f"spark.executorEnv.{name}"
        assert value == view.environment.get(name, "") if drives_here else name not in view.environment
        value = IDS_DIR if in_pods and name == "TORRENTDIST_IDS_DIR" else value
        assert value == conf.get(key, "") or key in mine
        if place:
            assert ("" if drives_here else value) == conf.get(f"{place}{name}", "")
    wanted = program_of(IDS_DIR) if request.is_python else None
    if in_pods:
        wanted = f"{IDS_DIR}/{request.env}/bin/python3" if request.env else None
    assert wanted == conf.get("spark.pyspark.python") or "spark.pyspark.python" in mine


@given(requests())
def test_spark_files_say_nothing_else(request: SubmitRequest) -> None:
    """The user's own defaults would be overridden by a setting that we add for another engine."""
    conf = settings_of(plan_command(request).command)
    added = {key for key in conf if key not in request.spark.conf}
    of_yarn = {key for key in added if key.startswith("spark.yarn.")}
    of_kubernetes = {key for key in added if key.startswith("spark.kubernetes.")}

    assert not of_yarn or (request.master == "yarn" and not request.drives_here)
    assert not of_kubernetes or request.master.startswith("k8s://")


@given(requests())
def test_pods_start_with_their_bundles_as_volumes(request: SubmitRequest) -> None:
    """On Kubernetes a driver or an executor would start without its bundle, or with rights that the
    level `restricted` of Pod Security refuses."""
    view = plan_command(request)
    conf = settings_of(view.command)
    bundles = {*request.bundles, *([request.env] if request.env else [])}
    is_needed = bool(bundles) and request.master.startswith("k8s://")
    sides = ["executor"] if request.drives_here else ["driver", "executor"]
    named = [conf.get(f"spark.kubernetes.{side}.podTemplateFile") for side in sides]
    pods = [json.loads(text)["spec"] for text in view.files.values()]

    assert (list(view.files) * len(sides) if is_needed else [None] * len(sides)) == named
    for pod in pods:
        (container,) = pod["containers"]
        volumes = {volume["name"]: volume["csi"]["volumeAttributes"]["bundle"] for volume in pod["volumes"]}
        mounted = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
        assert {f"{IDS_DIR}/{bundle}": bundle for bundle in bundles} == mounted
        assert all(volume["csi"]["readOnly"] for volume in pod["volumes"])
        assert not [volume for volume in pod["volumes"] if volume.keys() != {"name", "csi"}]


@given(requests())
def test_a_shell_runs_what_is_shown(request: SubmitRequest) -> None:
    """A user who pastes the command of --print would start another application."""
    view = plan_command(request)
    environment = [f"{name}={text}" for name, text in view.environment.items()]

    assert [*environment, *view.command] == shlex.split(view.shell())


def test_yarn_waits_as_long_as_spark_files_say() -> None:
    """The wait that an operator set for all applications would be replaced by ours."""
    spark = SparkArguments(application="app.py", values={"master": "yarn", "deploy-mode": "cluster"})
    found = [
        "spark.yarn.am.waitTime"
        in settings_of(plan_command(SubmitRequest(spark, None, (), IDS_DIR, "spark-submit", defaults)).command)
        for defaults in ({}, {"spark.yarn.am.waitTime": "900s"})
    ]

    assert [True, False] == found


@pytest.mark.parametrize(
    ("application", "share", "expected"),
    [("app.py", None, 0.0), ("app.jar", None, 1.0), ("app.py", 0.5, 0.5), ("app.jar", 0.0, 0.0)],
)
def test_a_jvm_waits_for_all_hosts_unless_its_user_says_otherwise(
    application: str, share: float | None, expected: float
) -> None:
    """A JVM would start where its bundles are missing, or Python would wait for a host that is
    down."""
    request = SubmitRequest(SparkArguments(application=application), None, (), IDS_DIR, "spark-submit")

    assert expected == hosts_to_wait_for(request, share)


def test_a_jvm_in_a_pod_waits_for_nobody() -> None:
    """One node that is down would hold up an application whose pods start with their bundles."""
    spark = SparkArguments(application="app.jar", values={"master": "k8s://https://h:6443", "deploy-mode": "cluster"})

    assert 0.0 == hosts_to_wait_for(SubmitRequest(spark, None, (), IDS_DIR, "spark-submit"), None)


def test_our_own_option_is_ours_where_spark_has_it_too() -> None:
    """`--help` would show Spark's help; or a command without anything would be a bug."""
    split = split_arguments(["--help", "--verbose", "app.py"], OWN)

    assert (("--help",), ("--verbose",), "app.py") == (split.own, split.spark.options, split.spark.application)
    assert SparkArguments() == split_arguments([], OWN).spark


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--no-such-option", "app.py"], "neither of spark-submit nor of torrentdist"),
        (["--master"], "--master has no value"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], words: str) -> None:
    """Spark would take the next word for the application, and fail far from the cause."""
    with pytest.raises(TorrentdistError, match=words):
        split_arguments(arguments, OWN)


@pytest.mark.parametrize(
    ("master", "application", "words"),
    [("mesos://h", "app.py", "no way to tell executors"), ("yarn", "app.jar", "use --bundle")],
)
def test_what_cannot_work_is_refused(master: str, application: str, words: str) -> None:
    """An application would start, and its executors would not have their bundles."""
    spark = SparkArguments(application=application, values={"master": master})
    request = SubmitRequest(spark=spark, env=BundleId("env-43"), bundles=(), ids_dir=IDS_DIR, program="spark-submit")
    with pytest.raises(TorrentdistError, match=words):
        plan_command(request)


@pytest.mark.parametrize(
    ("values", "conf", "defaults", "expected"),
    [
        ({"master": "yarn"}, {"spark.master": "local"}, {}, "yarn"),
        ({}, {"spark.master": "yarn"}, {"spark.master": "local"}, "yarn"),
        ({}, {}, {"spark.master": "yarn"}, "yarn"),
        ({}, {}, {}, "local[*]"),
    ],
)
def test_the_master_is_the_one_that_spark_takes(
    values: dict[str, str], conf: dict[str, str], defaults: dict[str, str], expected: str
) -> None:
    """An application would be told its bundles in a way that its engine does not know."""
    spark = SparkArguments(application="app.py", values=values, conf=conf)

    assert expected == SubmitRequest(spark, None, (), IDS_DIR, "spark-submit", defaults).master


@pytest.mark.parametrize(
    ("application", "expected"),
    [("app.py", True), ("a.pyc", True), ("a.py#b", True), ("", True), ("a.jar", False), ("a.jar#b.py", False)],
)
def test_what_counts_as_python(application: str, expected: bool) -> None:
    """A shell or a script would start without the Python of its bundle, or a jar would wait for
    one."""
    request = SubmitRequest(SparkArguments(application=application), None, (), IDS_DIR, "spark-submit")

    assert expected is request.is_python


@pytest.mark.parametrize(
    ("application", "mode", "python", "expected"),
    [
        ("app.py", "client", "", True),
        ("app.py", "client", program_of(IDS_DIR), True),
        ("app.py", "client", "/usr/bin/python3", False),
        ("app.py", "cluster", "", False),
        ("app.jar", "client", "", False),
    ],
)
def test_a_driver_waits_for_its_bundle_only_if_it_runs_in_it(
    application: str, mode: str, python: str, expected: bool
) -> None:
    """A driver with a Python of its own would wait for an environment that it never uses, or one
    that needs the environment would start without it."""
    spark = SparkArguments(
        application=application, values={"master": "yarn", "deploy-mode": mode}, conf={DRIVER_PYTHON: python}
    )
    request = SubmitRequest(spark, None, (), IDS_DIR, "spark-submit")

    assert expected == request.drives_with_bundle
