"""What a job.toml may contain, and the messages for everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from torrentdist.client.job_client import job_in, read_job
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.jobs.job import JobSpec, Restart, RestartPolicy, parse_job
from torrentdist.model.jobs.job_overrides import with_overrides
from torrentdist.model.jobs.spark_job import UI_PORT, SparkSpec

PLAIN = 'name = "wordcount"\ncommand = ["./run", "in put"]\n'


def refused(text: str) -> str:
    with pytest.raises(TorrentdistError) as caught:
        parse_job(text, origin="job.toml")
    return caught.value.message


def test_a_command_may_be_one_line() -> None:
    """The most common way to write a command would be an error."""
    found = parse_job('name = "wordcount"\ncommand = \'./run "in put"\'\n', origin="job.toml")

    assert parse_job(PLAIN, origin="job.toml") == found


def test_restart_may_be_a_word() -> None:
    """If this fails, an author who only wants `never` has to write a table."""
    found = parse_job(PLAIN + 'restart = "never"\n', origin="job.toml")

    assert Restart(policy=RestartPolicy.NEVER) == found.restart


def test_a_word_for_restart_overrides_the_file() -> None:
    """`--conf restart=never` would be refused, or lose to the file."""
    spec = parse_job(PLAIN + '[restart]\npolicy = "always"\nlimit = 3\n', origin="job.toml")

    assert Restart(policy=RestartPolicy.NEVER) == with_overrides(spec, None, None, {"restart": "never"}).restart


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'name = "x"\n[env]\nA = "1"\ncommand = ["./run"]\n',
            "job.toml:4: command: stands in [env], whose values are text;"
            " keys of the job stand before the first [table]",
        ),
        (
            'name = "x"\n[env]\nA = "1"\ncommand = "./run"\n',
            "job.toml:4: command: a job of kind process needs one; this one stands in [env]",
        ),
        (PLAIN + '[env]\nB = "1"\nA = 1\n', "job.toml:5: A: stands in [env], whose values are text"),
        (
            PLAIN + "workers = many\n",
            "job.toml:3: is not valid TOML: Invalid value (at line 3, column 11): workers = many",
        ),
    ],
)
def test_a_mistake_is_told_with_its_key_and_line(text: str, expected: str) -> None:
    """An author would search the whole file for a mistake that the program has seen."""
    assert expected == refused(text)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            'restart = "sometimes"',
            "job.toml:3: Invalid enum value 'sometimes' - at `$.restart.policy` (one of always, on-failure, never)",
        ),
        ("kill_wait_secs = inf", "job.toml:3: kill_wait_secs: must be a number of seconds, 0 or more"),
        ("restart.max_backoff_secs = nan", "job.toml: max_backoff_secs: must be a number of seconds, 0 or more"),
        ("replication.max_wait_secs = nan", "job.toml: max_wait_secs: must be a number of seconds, or -1 for no limit"),
        (
            "resources.memory_bytes = 9223372036854775808",
            "job.toml: memory_bytes: must be 0 or more, and less than 2^63",
        ),
        ('env."A=B" = "x"', "job.toml: A=B: 'A=B' cannot be the name of a variable"),
        ('env.A = "\\u0000"', "job.toml: A: must not hold a NUL character"),
        ('workers = "3"', "job.toml:3: Expected `int`, got `str` - at `$.workers`"),
        ("workers = 0", "job.toml:3: workers: must be 1 to 10000"),
        ("comand = []", "job.toml:3: Object contains unknown field `comand`"),
        ("[restart]\nlimt = 3", "job.toml:4: Object contains unknown field `limt` - at `$.restart`"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(line: str, expected: str) -> None:
    """The author of a job would search the whole file for the mistake."""

    assert expected == refused(PLAIN + line + "\n")


@pytest.mark.parametrize(
    ("said", "port"),
    [("4050", 4050), (4050, 4050), ("0", 0), ("", UI_PORT), ("²", UI_PORT), ("9" * 5000, UI_PORT)],
)
def test_the_port_of_a_drivers_page_is_a_number(said: str | int, port: int) -> None:
    """One job with an odd port would end the supervisor of each host that it comes to."""
    assert port == SparkSpec(conf={"spark.ui.port": said}).ui_port


def test_a_command_without_its_closing_quote() -> None:
    """A typing error would end as an internal error."""

    assert "job.toml:2: No closing quotation - at `$.command`" == refused('name = "x"\ncommand = \'./run "a\'\n')


def test_a_flag_that_is_no_choice_says_which_there_are() -> None:
    """If this fails, an author who mistyped a policy has to look for the page that lists them."""
    with pytest.raises(TorrentdistError) as caught:
        with_overrides(parse_job(PLAIN, origin="job.toml"), None, None, {"restart.policy": "maybe"})

    assert "(one of always, on-failure, never)" in caught.value.message


def test_a_path_that_leads_nowhere_is_no_bundle(tmp_path: Path) -> None:
    """A mistyped path would be refused as an id with strange letters."""
    with pytest.raises(TorrentdistError) as caught:
        job_in(f"{tmp_path}/no/such")

    assert "job_file_missing" == caught.value.code


def test_a_spec_survives_its_overrides() -> None:
    """Even without options, the leader would change what the file says."""
    spec: JobSpec = parse_job(PLAIN, origin="job.toml")

    assert spec == with_overrides(spec, None, None, {})


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (None, "job_file_missing", "{dir} has no job.toml, so it is no job"),
        (PLAIN + "comand = []", "job_invalid", "{dir}/job.toml:3: Object contains unknown field `comand`"),
        (PLAIN, "job_invalid", "{dir}/job.toml:2: command: there is no ./run in the bundle"),
        (PLAIN.replace("./run", "./plain"), "job_invalid", "{dir}/job.toml:2: command: ./plain is not executable"),
        (PLAIN.replace("./run", "plain"), "job_invalid", "{dir}/job.toml:2: command: plain is not executable"),
        (PLAIN.replace("./run", "../x"), "job_invalid", "{dir}/job.toml:2: command: there is no ../x in the bundle"),
    ],
)
def test_a_directory_that_is_no_job_says_so_and_where(
    tmp_path: Path, text: str | None, code: str, message: str
) -> None:
    """The user would be sent to the cluster's configuration, or learn of it after the upload."""
    (tmp_path / "plain").touch(mode=0o644)
    if text is not None:
        (tmp_path / "job.toml").write_text(text)
    with pytest.raises(TorrentdistError) as caught:
        read_job(tmp_path)

    assert (code, message.format(dir=tmp_path)) == (caught.value.code, caught.value.message)
    assert "docs/jobs.md" in caught.value.hint
