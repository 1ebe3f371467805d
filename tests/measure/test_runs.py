"""Each benchmark at its smallest, as a person starts it; and what it says to wrong arguments."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from app.local.processes import ROOT
from benchmarks.__main__ import NAMES

PAIR = ("--system", "headroom", "--system", "celery")


def bench(*arguments: str, codes: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
    """Run ``python -m benchmarks`` and check how it ended."""
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert answer.returncode in codes, answer.stdout + answer.stderr
    return answer


def rows(*arguments: str, codes: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
    """The rows of the JSON line, which is all that is printed with --json."""
    answer = bench(*arguments, "--json", codes=codes)
    (line,) = answer.stdout.splitlines()
    parsed = json.loads(line)
    assert list(parsed) == ["results"]
    return parsed["results"]


def test_loss_counts_both_systems_and_headroom_loses_nothing() -> None:
    headroom, celery = rows("loss", "--kills", "4", "--pods", "3", *PAIR)
    assert (headroom["system"], celery["system"]) == ("headroom", "celery")
    assert headroom["kills"] == 4
    assert (headroom["lost"], headroom["left"], headroom["violations"], headroom["missed"]) == (0, 0, 0, [])
    assert headroom["published"] == headroom["completed"] > 0
    assert celery["published"] == celery["completed"] + celery["lost"] + celery["left"] > 0


def test_restarts_lose_and_double_nothing() -> None:
    found = rows("restarts", "--count", "1", "--pods", "2", "--pool", "solo", *PAIR)
    assert [row["how"] for row in found] == ["sigterm", "sigkill", "rolling"] * 2
    assert [row["restarts"] for row in found] == [1, 1, 2] * 2
    assert all(row["published"] > 0 < row["up"] for row in found)
    for row in found[:3]:
        assert (row["missed"], row["completed"], row["capacity"]) == ([], row["published"], 1)
    for row in found[3:]:
        assert row["published"] == row["completed"] + row["lost"] + row["left"]


def test_a_schedule_misses_and_doubles_no_due_time() -> None:
    three, alone, celery = rows("beat", "--seconds", "3")
    assert [(row["system"], row["beats"]) for row in (three, alone, celery)] == [
        ("headroom", 3), ("headroom", 1), ("celery", 1),
    ]  # fmt: skip
    for row in (three, alone):
        assert (row["missing"], row["doubled"], row["missed"]) == (0, 0, [])
    assert all(row["runs"] > 0 < row["next_s"] for row in (three, alone, celery))


def test_saturation_keeps_order_and_counts_its_commands() -> None:
    # The tasks are long beside what this machine needs to start one, and the time's ratio is left to the full run.
    arguments = ("--tasks", "24", "--seconds", "0.2", "--critical", "1", "--window", "3")
    headroom, celery = rows("saturation", "--pool", "threads", *arguments, *PAIR, codes=(0, 1))
    assert (headroom["lost"], headroom["out_of_order"], headroom["requeues"], headroom["violations"]) == (0, 0, 0, 0)
    assert headroom["per_task"] < celery["per_task"]
    assert headroom["idle_per_s"] <= 3.5
    assert headroom["saturated_per_s"] <= 3.5
    assert len(headroom["critical_ms"]) == 1
    assert headroom["wake_p50_ms"] is not None


def test_saturation_counts_what_the_other_gate_puts_back() -> None:
    arguments = ("--tasks", "24", "--seconds", "0.2", "--critical", "1", "--window", "1", "--system", "requeue")
    (requeue,) = rows("saturation", "--pool", "threads", *arguments)
    assert (requeue["system"], requeue["lost"], requeue["violations"]) == ("requeue", 0, 0)
    assert 0 < requeue["requeues"] <= 12


SMALL_BOT = ("--pods", "3", "--shards", "6", "--ttl", "3", "--rate", "40")


def test_shards_failover_spends_no_identify_and_loses_no_event() -> None:
    cluster, plain = rows("shards-failover", *SMALL_BOT, "--kills", "1")
    assert (cluster["lost"], cluster["doubled"], cluster["out_of_order"], cluster["identifies"]) == (0, 0, 0, 0)
    assert cluster["resumed"] >= 2 <= plain["identifies"]


def test_shards_reshard_leaves_no_guild_alone() -> None:
    up, down = rows("shards-reshard", *SMALL_BOT, "--to", "9")
    assert [(row["identifies"], row["lost"], row["doubled"], row["unserved_ms"]) for row in (up, down)] == [
        (9, 0, 0, 0),
        (6, 0, 0, 0),
    ]


def test_shards_deploy_hands_every_shard_over() -> None:
    (row,) = rows("shards-deploy", *SMALL_BOT)
    assert (row["lost"], row["doubled"], row["out_of_order"], row["identifies"], row["bad_exits"]) == (0, 0, 0, 0, 0)
    assert row["resumed"] >= 6


def test_overhead_compares_the_two() -> None:
    small = ("--pool", "threads", "--concurrency", "1", "--prefetch", "1", "--tasks", "100", "--repeat", "1")
    # A ratio from so few tasks says nothing; that there is one does.
    (row,) = rows("overhead", *small, codes=(0, 1))
    assert row["time_ratio"] > 0
    assert len(row["headroom_s"]) == len(row["celery_s"]) == 1


def test_foreign_counts_one_bell_for_a_message() -> None:
    arguments = ("--pods", "2", "--messages", "8", "--rounds", "1", "--window", "1", "--system", "headroom")
    (headroom,) = rows("foreign", *arguments, codes=(0, 1))
    assert headroom["lost"] == 0
    assert headroom["bells"] <= 1 >= headroom["after_bells"]
    assert 0 < headroom["keeper_per_s"] <= 10
    assert headroom["killed_max_ms"] > 0 < headroom["frozen_max_ms"]


def test_waiters_costs_the_same_with_many() -> None:
    none, few, many = rows("waiters", "--repeat", "20")
    assert [row["waiters"] for row in (none, few, many)] == [0, 50, 500]
    assert none["put_calls"] < few["put_calls"]
    assert many["missed"] == []


def test_without_a_name_it_lists_them() -> None:
    listed = bench().stdout
    assert [line.split()[0] for line in listed.splitlines()[1:-1]] == list(NAMES)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["dance"], f"benchmarks: there is no benchmark 'dance'; there are {', '.join(NAMES)}"),
        (
            ["loss", "--kills", "0"],
            "benchmarks loss: argument --kills: '0' is not allowed: a whole number from 1 to 1000000",
        ),
        (
            ["saturation", "--seconds", "abc"],
            "benchmarks saturation: argument --seconds: 'abc' is not allowed: a number above 0 and up to 3600",
        ),
    ],
    ids=["unknown", "no-kills", "no-number"],
)
def test_wrong_arguments_are_refused_in_one_line(arguments: list[str], line: str) -> None:
    assert bench(*arguments, codes=(2,)).stderr.splitlines() == [line]
