"""The operations on a cluster, each by itself, on each kind of server: what they answer, refuse and leave."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

import pytest

from app.shards.commands import Reached
from tasks.shards.answers import Stop, Target
from tasks.shards.coordinator import URGENT
from tasks.shards.delivery import calls
from tasks.shards.keys import Keys
from tasks.shards.operations import (
    OPERATIONS,
    Call,
    Hold,
    Known,
    Numbers,
    Operations,
    read_looked,
    read_outcome,
    read_synced,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import redis

    from tasks.shards.answers import Bind, Synced

A, B = "a#1", "b#1"
NUMBERS = Numbers(ttl_ms=500, scan_ms=0, reserve=2, rounds=3, spacing_ms=400)


class Member:
    """A member that remembers nothing by itself."""

    def __init__(self, client: redis.Redis, name: str) -> None:
        """On this server."""
        self.client, self.ops = client, Operations(Keys("bot"), NUMBERS, name)

    def do(self, call: Call) -> Any:
        return Reached(self.client, self.ops).ask(call)

    def sync(self, holds: Iterable[Hold] = (), known: Known | None = None) -> Synced:
        known = known or Known()
        return read_synced(self.do(self.ops.sync(known, holds, limit=9, draining=False, seen=-1)))

    def opened(self) -> None:
        """Let the guard of the first SYNC pass."""
        self.sync()
        self.client.hdel(self.ops.keys.state(), "guard")

    def wants(self, total: int) -> str:
        return read_outcome(self.do(self.ops.target(total)))


def binds(synced: Synced) -> dict[tuple[int, int], Bind]:
    """Who holds what, as a SYNC with `seen=-1` tells it."""
    assert synced.view is not None
    return synced.view.binds


@pytest.fixture
def a(server: redis.Redis) -> Member:
    made = Member(server, A)
    made.opened()
    made.do(made.ops.budget(1000, 1000, 60_000, 1))
    return made


@pytest.fixture
def b(a: Member) -> Member:
    made = Member(a.client, B)
    made.sync()
    return made


def test_each_script_says_what_it_takes() -> None:
    """As many arguments as the header tells, and only parts that exist."""
    for name in (*OPERATIONS, *calls.OPERATIONS):
        text = (files("tasks.shards") / "lua" / f"{name}.lua").read_text(encoding="utf-8")
        told = {int(number) for number in re.findall(r"^-- ARGV\[(\d+)", text, re.MULTILINE)}
        used = {int(number) for number in re.findall(r"(?<!-- )ARGV\[(\d+)\]", text)} - set(range(1, 6))
        assert told | {18} >= used, name
        assert text.startswith(f"-- {name.upper()}: "), name
        assert "-- RETURNS" in text, name


def test_nothing_may_be_claimed_while_the_guard_holds(a: Member) -> None:
    assert a.wants(2) == "proposed"
    assert a.do(a.ops.claim(1, 9, [0, 1])) == [1, 2]
    fresh = Member(a.client, B)
    fresh.client.flushdb()
    known = Known(1, 1, None, Target(1, 2, 0, "votes"), 2, 2)
    assert fresh.sync(known=known).head.guard_ms > 0
    assert fresh.do(fresh.ops.claim(1, 9, [0])) == []
    assert read_outcome(fresh.do(fresh.ops.target(4))) == "guard"


def test_all_tell_what_they_hold_while_the_guard_lasts(a: Member, b: Member) -> None:
    """Whoever comes first, the higher fence stands when it is over."""
    a.client.flushdb()
    known = Known(1, 1, None, Target(1, 2, 0, "votes"), 2, 2)
    assert binds(a.sync([Hold(1, 0, 1, ready=True)], known))[1, 0].member == A
    assert binds(b.sync([Hold(1, 0, 2, ready=True)], known))[1, 0].member == B
    assert a.sync([Hold(1, 0, 1, ready=True)], known).lost == ((1, 0),)


def test_of_two_numberings_the_later_one_counts(a: Member, b: Member) -> None:
    """Who was away from before a loss of data holds version 1, and version 1 is another target by now."""
    a.wants(2)
    a.do(a.ops.claim(1, 9, [0]))
    born = a.sync().head.born
    earlier, later = (Known(1, 7, None, Target(1, 16, 0, "votes"), 9, 1, born + ms) for ms in (-5, 5))
    assert b.sync([Hold(1, 0, 8, ready=True)], earlier).lost == ((1, 0),)
    seen = a.sync([Hold(1, 0, 1, ready=False)], Known(1, 1, None, None, 1, 1, born))
    assert (seen.lost, seen.head.n, binds(seen)[1, 0].member) == ((), 1, A)
    seen = b.sync([Hold(1, 0, 8, ready=True)], later)
    assert (seen.lost, seen.head.n, binds(seen)[1, 0].member) == ((), 7, B)
    assert seen.head.guard_ms > 0
    assert a.sync([Hold(1, 0, 1, ready=False)], Known(1, 1, None, None, 1, 1, born)).lost == ((1, 0),)


def test_the_higher_fence_wins(a: Member, b: Member) -> None:
    a.wants(2)
    a.do(a.ops.claim(1, 9, [0]))
    assert a.sync([Hold(1, 0, 1, ready=True)]).lost == ()
    assert b.sync([Hold(1, 0, 7, ready=True)]).lost == ()
    assert a.sync([Hold(1, 0, 1, ready=True)]).lost == ((1, 0),)


def test_a_claim_stops_at_its_cap_and_at_the_last_shard(a: Member) -> None:
    a.wants(3)
    assert a.do(a.ops.claim(1, 2, [0, 1, 2])) == [1, 2, 0]
    assert a.do(a.ops.claim(1, 9, [3, 1, 2])) == [0, 0, 3]


def test_one_that_was_declared_dead_comes_back_to_what_nobody_took(a: Member, b: Member) -> None:
    a.wants(1)
    a.do(a.ops.claim(1, 9, [0]))
    a.client.zadd(a.ops.keys.nodes(), {A: 1})
    a.client.zadd(a.ops.keys.nodes(), {"c#1": 9e15, "d#1": 9e15})  # so that one is not half of them
    assert binds(b.sync())[1, 0].state == "orphan"
    assert a.sync([Hold(1, 0, 1, ready=True)]).lost == ()
    assert binds(b.sync())[1, 0].member == A


def test_a_wish_is_refused_for_what_stands_against_it(a: Member) -> None:
    assert a.wants(999) == "budget" or a.wants(999) == "proposed"
    a.do(a.ops.abort(0, "test"))
    a.client.delete(a.ops.keys.identify())
    assert a.wants(4) == "unknown"
    a.do(a.ops.budget(1000, 100, 60_000, 1))
    assert a.wants(4) == "proposed"
    assert a.wants(5) == "pending"
    looked = read_looked(a.do(a.ops.look()))
    assert looked.head.pending is not None
    assert a.do(a.ops.claim(looked.head.pending.version, 9, [0, 1, 2, 3])) != []
    fences = [looked.view.binds, binds(a.sync())][1]
    holds = [Hold(version, shard, bind.fence, ready=True) for (version, shard), bind in fences.items()]
    a.sync(holds)
    assert a.do(a.ops.flip(looked.head.pending.version)) == 1
    assert a.wants(4) == "same"


def test_who_decides_is_kept_with_the_target(a: Member) -> None:
    """A person, through the flip and in what members remember; the votes again, when the person says so."""

    def decider() -> tuple[str, int]:
        head = a.sync().head
        target = head.pending or head.active
        assert target is not None
        return target.by, head.n

    a.wants(1)
    assert decider() == ("person", 1)
    assert a.wants(0) == "pending"
    (fence,) = a.do(a.ops.claim(1, 9, [0]))
    a.sync([Hold(1, 0, fence, ready=True)])
    assert a.do(a.ops.flip(1)) == 1
    assert decider() == ("person", 2)
    assert a.wants(0) == "none"
    assert decider() == ("votes", 3)
    assert a.wants(0) == "none"
    assert decider() == ("votes", 3)
    assert a.wants(1) == "same"
    assert decider() == ("person", 4)
    assert read_outcome(a.do(a.ops.vote(2, 999))) == "none"
    assert read_outcome(a.do(a.ops.vote(2, URGENT))) == "proposed"
    assert decider() == ("votes", 5)


def test_a_flip_needs_every_shard_ready(a: Member) -> None:
    a.wants(2)
    one, two = a.do(a.ops.claim(1, 9, [0, 1]))
    a.sync([Hold(1, 0, one, ready=True), Hold(1, 1, two, ready=False)])
    assert a.do(a.ops.flip(1)) == 0
    a.sync([Hold(1, 0, one, ready=True), Hold(1, 1, two, ready=True)])
    assert a.do(a.ops.flip(1)) == 1
    assert a.do(a.ops.flip(1)) == 0


def test_release_is_only_for_the_holder(a: Member, b: Member) -> None:
    a.wants(1)
    (fence,) = a.do(a.ops.claim(1, 9, [0]))
    assert b.do(b.ops.release(1, 0, fence)) == 0
    assert a.do(a.ops.release(1, 0, fence + 1)) == 0
    assert a.do(a.ops.release(1, 0, fence)) == 1
    assert a.do(a.ops.release(1, 0, fence)) == 0
    assert b.do(b.ops.claim(1, 9, [0])) == [fence + 1]


def test_an_identify_is_only_for_the_holder_and_one_at_a_time(a: Member, b: Member) -> None:
    a.wants(2)
    one, two = a.do(a.ops.claim(1, 9, [0, 1]))
    assert b.do(b.ops.identify(1, 0, one)) == -1
    assert a.do(a.ops.identify(1, 0, one)) == 0
    assert 0 < a.do(a.ops.identify(1, 1, two)) <= NUMBERS.spacing_ms


def test_the_last_identifies_of_a_day_are_nobodys(a: Member) -> None:
    """At none left Discord resets the token."""
    a.wants(1)
    (fence,) = a.do(a.ops.claim(1, 9, [0]))
    a.do(a.ops.budget(1000, 5, 60_000, 1))
    assert a.do(a.ops.identify(1, 0, fence)) == -2


def test_of_two_answers_about_a_day_the_lower_one_counts(a: Member) -> None:
    assert a.do(a.ops.budget(1000, 40, 60_000, 1)) == 40
    assert a.do(a.ops.budget(1000, 90, 60_500, 1)) == 40
    assert a.do(a.ops.budget(1000, 1000, 86_000_000, 1)) == 1000, "another day"


def test_nothing_without_a_ttl_but_what_must_outlive_its_writer(a: Member, b: Member) -> None:
    a.wants(2)
    one, _ = a.do(a.ops.claim(1, 9, [0, 1]))
    a.do(a.ops.identify(1, 0, one))
    b.do(b.ops.vote(4, 3))
    a.do(a.ops.leave())
    keys = cast("list[bytes]", a.client.keys("*"))
    lasting = {key.decode() for key in keys if a.client.ttl(key.decode()) == -1}
    ns = a.ops.keys.namespace()
    assert lasting == {ns + name for name in ("state", "target:pending", "versions", "nodes", "shard:bind:1")}


# ---------------------------------------------------------------- what Discord closed for good

CREDENTIALS = "c0ffee"


def stop(member: Member, scope: str, code: int) -> int:
    """Say that shard 0 was closed for good; the member claims it first."""
    (fence,) = member.do(member.ops.claim(1, 9, [0]))
    done = member.do(member.ops.stop(1, 0, fence, Stop(scope, code, 0, "closed with it: for a reason")))
    member.do(member.ops.release(1, 0, fence))
    return done


def stops(member: Member) -> list[tuple[str, int, str]]:
    return [(each.scope, each.code, each.why) for each in member.sync().head.stops]


@pytest.fixture
def two(a: Member, b: Member) -> tuple[Member, Member]:
    """Two members of one bot with a target, who try with the same credentials."""
    assert a.wants(2) == "proposed"
    a.ops.credentials = b.ops.credentials = CREDENTIALS
    return a, b


def granted(member: Member) -> int:
    """What the gate says of a shard that is claimed for it; it is given back."""
    (fence,) = member.do(member.ops.claim(1, 9, [1]))
    assert fence
    answer = member.do(member.ops.identify(1, 1, fence))
    member.do(member.ops.release(1, 1, fence))
    return answer


@pytest.mark.parametrize("code", [4013, 4014])
def test_intents_that_discord_refuses_are_identified_with_by_nobody(two: tuple[Member, Member], code: int) -> None:
    a, b = two
    assert stop(a, CREDENTIALS, code) == 1
    assert stops(b) == [(CREDENTIALS, code, "closed with it: for a reason")]
    assert granted(b) == -4
    b.ops.credentials = "other"
    assert granted(b) == 0, "a pod with other credentials tries"


@pytest.mark.parametrize("code", [4004, 4012])
def test_a_token_that_discord_refuses_is_used_by_nobody_any_more(two: tuple[Member, Member], code: int) -> None:
    a, b = two
    stop(a, CREDENTIALS, code)
    assert b.do(b.ops.claim(1, 9, [0, 1])) == []
    b.ops.credentials = "other"
    assert all(b.do(b.ops.claim(1, 9, [0, 1])))


def test_a_person_lets_everybody_try_again(two: tuple[Member, Member]) -> None:
    a, b = two
    stop(a, CREDENTIALS, 4004)
    stop_of_target = a.do(a.ops.look())
    assert [each.code for each in read_looked(stop_of_target).head.stops] == [4004]
    rev = b.sync().head.rev
    assert b.do(b.ops.retry()) == 1
    assert b.do(b.ops.retry()) == 0
    assert stops(a) == []
    assert a.sync().head.rev > rev
    assert granted(b) == 0


def test_a_total_that_discord_refuses_stops_its_target_alone_and_goes_with_it(two: tuple[Member, Member]) -> None:
    a, b = two
    stop(a, "v1", 4010)
    assert granted(b) == -4
    assert b.do(b.ops.abort(1, "as Discord says"))
    assert b.wants(3) == "proposed"
    (fence,) = b.do(b.ops.claim(3, 9, [0]))
    assert b.do(b.ops.identify(3, 0, fence)) == 0
    assert stops(b) == []


def test_who_lost_the_shard_meanwhile_stops_nobody(two: tuple[Member, Member]) -> None:
    a, b = two
    (fence,) = a.do(a.ops.claim(1, 9, [0]))
    told = Stop(CREDENTIALS, 4004, 0, "why")
    assert a.do(a.ops.stop(1, 0, fence + 1, told)) == 0
    assert b.do(b.ops.stop(1, 0, fence, told)) == 0
    assert a.do(a.ops.stop(9, 0, fence, told)) == 0, "of a target that is over"
    assert stops(b) == []
