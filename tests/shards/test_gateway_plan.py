"""What follows from the end of a socket, and the places for what is sent: without any socket."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.shards.gateway.payloads import CLOSES
from tasks.shards.gateway.plan import Again, Breaker, Ended, Numbers, Over, Plan, Sends
from tasks.shards.gateway.session import Session, Shard

MAIN, OWN = "wss://main.invalid", "wss://own.invalid"
SESSION = Session("s-1", 42, OWN)
CUT = Ended("closed", "the connection was lost", opened=True, hailed=True)
AWAY = Ended("unreachable", "cannot connect")


def made(session: Session | None = SESSION, *, chance: float = 1.0, main: str = MAIN) -> Plan:
    """A plan in which every length of time is the longest."""
    return Plan(main, session, Numbers(), lambda: chance)


def closed(code: int, **more: Any) -> Ended:
    return CUT._replace(code=code, **more)


# ---------------------------------------------------------------- close codes


@pytest.mark.parametrize("code", [4004, 4010, 4011, 4012, 4013, 4014])
def test_a_fatal_code_is_the_end_for_all_pods_and_says_which_it_was(code: int) -> None:
    over = made().after(closed(code), 0.0)
    assert isinstance(over, Over)
    assert (over.fatal, over.code) == (True, code)
    assert CLOSES[code][1] in over.why


@pytest.mark.parametrize("code", [4007, 4009])
def test_a_session_that_discord_ended_is_not_resumed(code: int) -> None:
    plan = made()
    assert isinstance(plan.after(closed(code), 0.0), Again)
    assert plan.session is None


@pytest.mark.parametrize("code", [0, 1000, 1001, 1006, 1011, 4000, 4001, 4002, 4003, 4005, 4006, 4008, 4999])
def test_after_any_other_code_the_session_is_resumed(code: int) -> None:
    plan = made()
    assert isinstance(plan.after(closed(code, ready=True), 0.0), Again)
    assert (plan.session, plan.url) == (SESSION, OWN)


def test_who_is_not_the_owner_any_more_ends_and_nobody_else_has_to() -> None:
    assert made(None).after(Ended("not ours", "another pod's", opened=True), 0.0) == Over("another pod's")


# ---------------------------------------------------------------- session and address


def test_a_resume_url_that_is_dead_gives_way_to_the_main_one_and_the_session_stays() -> None:
    plan = made()
    plan.after(AWAY, 0.0)
    assert (plan.session, plan.url) == (SESSION, MAIN)
    plan.after(CUT._replace(ready=True), 0.0)
    assert plan.url == OWN, "what stood at the main URL is resumed at its own again"


def test_a_network_that_is_away_for_long_costs_no_session() -> None:
    plan = made()
    for _ in range(100):
        plan.after(AWAY, 0.0)
    assert plan.session == SESSION


def test_a_session_whose_resumes_are_never_answered_is_given_up() -> None:
    """After so long as Discord may keep it: tried all the while, ever more seldom, and never paused."""
    plan, now_s = made(), 1000.0
    plan.after(CUT._replace(ready=True, how="asked"), now_s)
    urls: list[str] = []
    while True:
        urls.append(plan.url)
        now_s += 0.1
        again = plan.after(CUT, now_s)
        assert isinstance(again, Again)
        if again.dropped:
            break
        assert (plan.session, again.paused) == (SESSION, False)
        now_s += again.after_s
    assert 180.0 <= now_s - 1000.0 < 180.0 + 30.0 + 1.0
    assert (urls[0], {*urls[1:]}, plan.url) == (OWN, {MAIN}, MAIN)
    assert 8 < len(urls) < 20
    assert again == Again(again.after_s, paused=False, dropped="unanswered")


def test_a_session_that_is_answered_after_a_while_is_kept() -> None:
    """Discord's own: after op 7 every RESUME was reset, for 90 s."""
    plan, now_s = made(), 0.0
    while now_s < 150.0:
        again = plan.after(CUT, now_s)
        assert isinstance(again, Again)
        now_s += again.after_s
    plan.after(CUT._replace(ready=True), now_s + 600.0)
    for count in range(10):  # the time begins anew
        plan.after(CUT, now_s + 601.0 + count)
    assert plan.session == SESSION


def test_a_few_resumes_are_tried_however_long_the_network_was_away() -> None:
    plan = made()
    for at_s in range(0, 3600, 30):
        plan.after(AWAY, float(at_s))
    drops = [getattr(plan.after(CUT, 3600.0 + n), "dropped", None) for n in range(3)]
    assert drops == ["", "", "unanswered"]


def test_op_9_true_may_come_again_but_not_for_ever_and_ever_more_seldom() -> None:
    plan, now_s, waits_s = made(), 0.0, list[float]()
    while plan.session is not None:
        again = plan.after(CUT._replace(how="try again"), now_s)
        assert isinstance(again, Again)
        now_s += again.after_s
        waits_s.append(again.after_s)
    assert (waits_s[0], max(waits_s)) == (5.0, 30.0)
    assert 180.0 <= now_s <= 180.0 + 2 * 30.0


def test_the_token_does_not_go_to_an_address_without_tls_unless_the_main_one_is_such() -> None:
    plain = SESSION._replace(resume_url="ws://own.invalid")
    assert made(plain).url == MAIN
    assert made(SESSION._replace(resume_url="https://own.invalid")).url == MAIN
    assert made(plain, main="ws://main.invalid").url == "ws://own.invalid"


# ---------------------------------------------------------------- waiting


def waits(plan: Plan, *ends: Ended) -> list[float]:
    found: list[float] = []
    for count, ended in enumerate(ends):
        again = plan.after(ended, count * 1000.0)
        assert isinstance(again, Again)
        assert not again.paused
        found.append(again.after_s)
    return found


def test_it_waits_longer_with_each_failure_and_not_after_what_stood() -> None:
    stood = CUT._replace(ready=True)
    assert waits(made(), stood, AWAY, AWAY, AWAY, stood) == [0.5, 1.0, 2.0, 4.0, 0.5]
    assert waits(made(), *[AWAY] * 40)[-1] == 30.0
    assert waits(made(chance=0.0), AWAY, AWAY) == [0.5, 1.0], "never less than a half of it"


def test_op_7_is_followed_at_once_and_op_9_after_one_to_five_seconds() -> None:
    asked = CUT._replace(how="asked", ready=True)
    assert waits(made(), asked) == [0.0]
    for how in ("invalid", "try again"):
        assert waits(made(chance=0.0), CUT._replace(how=how)) == [1.0]
        assert waits(made(chance=1.0), CUT._replace(how=how)) == [5.0]


def test_op_7_in_place_of_hello_does_not_spin() -> None:
    in_place = Ended("asked", "op 7", opened=True)
    assert waits(made(), *[in_place] * 4) == [1.0, 2.0, 4.0, 8.0]


def test_who_is_dropped_while_it_waits_for_the_gate_comes_back_soon_and_is_never_paused() -> None:
    dropped = CUT._replace(hailed=False, lived_s=10.0)
    plan = made(None)
    for count in range(50):
        assert plan.after(dropped, count * 10.0) == Again(0.5)


# ---------------------------------------------------------------- the breaker


def test_five_ends_within_a_minute_make_a_pause_and_six_minutes_of_them_do_not() -> None:
    plan = made()
    looping = closed(1011, ready=True)
    assert [plan.after(looping, at_s) for at_s in (0, 14, 28, 42)] == [Again(0.5)] * 4
    assert plan.after(looping, 60.0) == Again(300.0, paused=True)
    slow = made()
    assert all(slow.after(looping, at_s * 15.1) == Again(0.5) for at_s in range(24))


def test_after_a_pause_one_end_makes_the_next_unless_it_stood_for_a_minute() -> None:
    breaker = Breaker(Numbers())
    pauses = [breaker.pause_s(float(at_s)) for at_s in (0, 1, 2, 3, 4, 305, 610)]
    assert pauses == [0, 0, 0, 0, 300, 300, 300]
    assert breaker.pause_s(610 + 300 + 61) == 0
    assert breaker.pause_s(610 + 300 + 62) == 0


def test_op_7_after_a_pause_is_no_loop() -> None:
    breaker = Breaker(Numbers())
    for at_s in range(5):
        breaker.pause_s(float(at_s))
    assert breaker.pause_s(310.0, asked=True) == 0


def test_a_shard_that_loops_for_a_day_leaves_most_of_the_days_identifies() -> None:
    plan, now_s, identifies = made(None), 0.0, 0
    while now_s < 86_400:
        identifies += plan.session is None
        again = plan.after(closed(1011), now_s)
        assert isinstance(again, Again)
        now_s += again.after_s + 0.2
    assert identifies < 300


def test_a_session_a_day_that_is_never_resumed_leaves_most_of_the_days_identifies() -> None:
    """Each new one gets READY, is cut, and then no RESUME is answered."""
    plan, now_s, identifies, pauses = made(None), 0.0, 0, 0
    while now_s < 86_400:
        fresh = plan.session is None
        identifies += fresh
        plan.session = SESSION
        again = plan.after(CUT._replace(ready=fresh), now_s)
        assert isinstance(again, Again)
        pauses += again.paused
        now_s += again.after_s + 0.2
    assert identifies < 200
    assert pauses == identifies - 2, "the first was given up at once, the last was not"


def test_sockets_that_were_never_open_make_no_pause() -> None:
    plan = made()
    assert not any(isinstance(again := plan.after(AWAY, 0.0), Again) and again.paused for _ in range(20))


# ---------------------------------------------------------------- the places for what is sent


def test_so_many_are_sent_in_a_minute_and_beats_have_places_of_their_own() -> None:
    sends = Sends(Numbers(sends=6, sends_within_s=60, sends_kept=2))
    assert [sends.wait_s(float(at_s)) for at_s in (0, 1, 2, 3)] == [0, 0, 0, 0]
    assert sends.wait_s(10.0) == 50.0
    assert [sends.wait_s(at_s, beat=True) for at_s in (11.0, 12.0)] == [0, 0]
    assert sends.wait_s(13.0, beat=True) == 47.0
    assert sends.wait_s(60.0, beat=True) == 0.0, "the first is a minute old"
    assert sends.wait_s(60.0) > 0


@pytest.mark.parametrize("beats", [0.0, 0.5])
def test_no_minute_has_more_than_it_may(beats: float) -> None:
    numbers = Numbers()
    sends, sent, now_s = Sends(numbers), list[float](), 0.0
    for turn in range(2000):
        wait_s = sends.wait_s(now_s, beat=turn % 2 < beats * 2)
        if not wait_s:
            sent.append(now_s)
        now_s += 0.07 if not wait_s else min(wait_s, 0.5)
    assert len(sent) > numbers.sends
    for first, last in zip(sent, sent[numbers.sends :], strict=False):
        assert last - first >= numbers.sends_within_s


# ---------------------------------------------------------------- secrets


def test_a_shard_does_not_show_its_token() -> None:
    assert "secret" not in repr(Shard(MAIN, "secret", 1, 0, 1))
