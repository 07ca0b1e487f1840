"""The command of spark-submit holds what the user gave and what the engine needs, whatever that
is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.spark.submission.submit_arguments import SWITCHES, WITH_VALUE, SparkArguments, split_arguments
from torrentdist.spark.submission.submit_plan import SubmitRequest, plan_command, program_of

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

    assert rest == command[-len(rest) :]
    assert request.spark.conf.items() <= settings_of(command).items()


@given(requests())
def test_every_process_knows_its_bundles(request: SubmitRequest) -> None:
    """An executor or a driver would run the wrong Python, or fail where its bundle has not come."""
    view = plan_command(request)
    conf, mine = settings_of(view.command), request.spark.conf
    drives_here = "cluster" not in request.spark.options or request.master == "local[2]"
    places = {"yarn": "spark.yarn.appMasterEnv.", "k8s:": "spark.kubernetes.driverEnv."}
    place = places.get(request.master[:4])
    expected = {"TORRENTDIST_ENV": request.env or "", "TORRENTDIST_BUNDLES": ",".join(request.bundles)}

    for name, value in expected.items():
        key = f"spark.executorEnv.{name}"
        assert value == conf.get(key, "") or key in mine
        assert value == view.environment.get(name, "") if drives_here else name not in view.environment
        if place and not drives_here:
            assert value == conf.get(f"{place}{name}", "")
    wanted = program_of(IDS_DIR) if request.is_python else None
    assert wanted == conf.get("spark.pyspark.python") or "spark.pyspark.python" in mine


@given(requests())
def test_spark_files_say_nothing_else(request: SubmitRequest) -> None:
    """The user's own defaults would be overridden by a setting that we add for another engine."""
    conf = settings_of(plan_command(request).command)
    added = {key for key in conf if key not in request.spark.conf}
    of_yarn = {key for key in added if key.startswith("spark.yarn.")}
    of_kubernetes = {key for key in added if key.startswith("spark.kubernetes.")}

    assert not of_yarn or (request.master == "yarn" and not request.drives_here)
    assert bool(of_kubernetes) == request.master.startswith("k8s://")


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
