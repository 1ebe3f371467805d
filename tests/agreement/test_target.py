"""Votes, the three phases of a new target and the identify gate: scenes on a clock of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tasks.shards.operations import Numbers, read_looked, read_outcome
from tasks.shards.vocabulary import Closed
from tests.agreement.scenes import active, active_version, fleet, names, pod_of
from tests.agreement.world import World

if TYPE_CHECKING:
    import redis

# ---------------------------------------------------------------- votes


def test_one_pod_that_is_told_otherwise_changes_nothing(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abc")
    before = active(world)
    world.discord.recommends["a"] = 64
    world.run(300.0)
    assert active(world) == before


def test_half_of_the_pods_blind_is_no_majority_and_more_than_half_is(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abcd")
    world.discord.recommend(24)
    world.discord.blind |= {"a", "b"}
    world.run(300.0)
    assert world.served(16)
    world.discord.blind.discard("a")
    world.until(lambda: world.served(24), 300.0)


def test_an_even_split_changes_nothing(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abcd")
    for name, total in zip("abcd", (24, 24, 32, 32), strict=True):
        world.discord.recommends[name] = total
    world.run(300.0)
    assert world.served(16)


def test_one_value_must_be_told_in_three_rounds(valkey: redis.Redis) -> None:
    """What Discord says for a minute only is no reason to connect everything anew."""
    world = fleet(valkey, "abc")
    version = active(world)
    for _ in range(5):
        world.discord.recommend(24)
        world.run(45.0)
        world.discord.recommend(16)
        world.run(75.0)
    assert active(world) == version


def test_votes_are_counted_again_when_the_fleet_shrinks(valkey: redis.Redis) -> None:
    """Two of five want it. When two others leave in order, two of three do."""
    world = fleet(valkey, "abcde")
    world.discord.recommends |= {"a": 24, "b": 24}
    world.run(200.0)
    assert world.served(16)
    world.discord.blind |= set("abcde")
    world.drain(pod_of(world, "d"))
    world.drain(pod_of(world, "e"))
    world.until(lambda: any(pod.state.head.pending for pod in world.living()), 60.0)


def test_a_lone_pod_after_a_loss_of_all_data_is_no_majority(valkey: redis.Redis) -> None:
    """Four of five are cut off when Redis loses everything; the fifth is told of 24."""
    world = fleet(valkey, "abcde")
    n = pod_of(world, "a").state.known.n
    world.discord.recommends["a"] = 24
    world.run(120.0)
    for name in "bcde":
        world.cut_off(pod_of(world, name), 40.0)
    world.restart_redis(1.0, "empty")
    world.run(39.0)
    assert pod_of(world, "a").state.known.n == n
    world.until(lambda: world.served(16))


def test_a_fleet_that_was_scaled_from_20_to_3_still_votes(valkey: redis.Redis) -> None:
    world = fleet(valkey, names(20), 40)
    for name in names(20)[3:]:
        world.drain(pod_of(world, name))
    world.until(lambda: world.served(40) and len(world.living()) == 3)
    world.discord.recommend(24)
    world.until(lambda: world.served(24), 300.0)
    assert world.twice == []


def test_what_a_person_set_stays_until_the_person_leaves_it_to_the_votes(valkey: redis.Redis) -> None:
    """Also when Redis forgets it. Then the pods go back to what Discord recommends."""
    world = fleet(valkey, "abc")
    person = pod_of(world, "a")
    world.execute(person.ops, person.ops.target(24))
    world.until(lambda: world.served(24), 300.0)
    world.run(200.0)
    world.restart_redis(1.0, "empty")
    world.run(200.0)
    assert world.served(24)
    assert read_outcome(world.execute(person.ops, person.ops.target(0))) in ("none", "proposed")
    world.until(lambda: world.served(16), 300.0)


def test_a_person_s_number_gives_way_when_discord_closes_connections(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abc")
    person = pod_of(world, "a")
    world.execute(person.ops, person.ops.target(8))
    world.until(lambda: world.served(8), 300.0)
    pod = pod_of(world, "b")
    slot, own = next(iter(pod.state.owns.items()))
    world.feed(pod, Closed(slot, own.fence, "more shards are required", 4011))
    world.until(lambda: world.served(16), 300.0)


# ---------------------------------------------------------------- the target


@pytest.mark.parametrize(("lossy", "most_s"), [(0.0, 0.2), (1.0, 1.0)])
def test_every_pod_notices_a_new_target_at_once(valkey: redis.Redis, lossy: float, most_s: float) -> None:
    """With all notifications, and with none."""
    world = fleet(valkey, names(8), lossy=lossy)
    person = pod_of(world, "pod-0")
    n = person.state.known.n + 1
    began_s = world.now_s
    assert read_outcome(world.execute(person.ops, person.ops.target(24))) == "proposed"
    world.run(2.0)
    noticed = [world.noticed[pod.state.member, n] - began_s for pod in world.living()]
    assert max(noticed) <= most_s


@pytest.mark.parametrize(("lossy", "most_s"), [(0.0, 0.2), (1.0, 1.0)])
def test_a_hand_over_is_noticed_at_once(valkey: redis.Redis, lossy: float, most_s: float) -> None:
    """From a shard that was given back to the pod that claims it."""
    world = fleet(valkey, names(4), lossy=lossy)
    leaving = pod_of(world, "pod-1")
    slots = set(leaving.state.owns)
    world.drain(leaving)
    world.until(lambda: leaving.state.left)
    left_s = world.now_s

    def taken() -> bool:
        return slots <= {slot for pod in world.living() for slot in pod.state.owns}

    world.until(taken)
    assert world.now_s - left_s <= most_s


def test_old_shards_serve_until_all_new_ones_are_ready(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abc")
    version, _ = active(world)
    person = pod_of(world, "a")
    world.execute(person.ops, person.ops.target(24))
    while active_version(world) == version:
        ready = [slot for pod in world.living() for slot, own in pod.state.owns.items() if own.ready]
        assert {slot for slot in ready if slot[0] == version} == {(version, shard) for shard in range(16)}
        world.run(0.1)
    world.until(lambda: world.served(24))
    world.until(lambda: not valkey.exists(world.keys.binds(version)))
    assert len(world.discord.identifies) == 16 + 24


def test_no_new_shard_moves_while_the_old_ones_close(valkey: redis.Redis) -> None:
    """A hand-over is a gap, and guilds have none while the number of shards changes. Loads are levelled afterwards."""
    world = fleet(valkey, "abc")
    person, old = pod_of(world, "a"), active_version(world)
    world.execute(person.ops, person.ops.target(24))

    def new_ones() -> dict[tuple[int, int], int]:
        return {slot: own.fence for pod in world.living() for slot, own in pod.state.owns.items() if slot[0] > old}

    world.until(lambda: len(new_ones()) == 24, 300.0)
    world.start("d")  # has nothing, so that each of the others has too much
    world.until(lambda: active_version(world) > old, 300.0)
    before = now = new_ones()
    while any(slot[0] == old for pod in world.living() for slot in pod.state.owns):
        assert now == before
        world.run(0.1)  # within which the last may close, and the levelling begin
        now = new_ones()
    world.until(lambda: len(pod_of(world, "d").state.owns) >= 5, 300.0)


def test_an_aborted_target_is_closed_and_its_version_burnt(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abc")
    person = pod_of(world, "a")
    world.execute(person.ops, person.ops.target(24))
    world.run(2.0)
    pending = person.state.head.pending
    assert pending
    assert world.execute(person.ops, person.ops.abort(0, "a person says so")) == 1
    world.until(lambda: not valkey.exists(world.keys.binds(pending.version)))
    assert world.served(16)
    world.execute(person.ops, person.ops.target(24))
    world.run(1.0)
    again = person.state.head.pending
    assert again
    assert again.version > pending.version


def test_a_target_that_cannot_be_connected_in_time_is_aborted(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abc")
    person = pod_of(world, "a")
    world.discord.unreachable = True
    world.execute(person.ops, person.ops.target(24))
    world.until(lambda: person.state.head.pending is not None)
    world.until(lambda: person.state.head.pending is None, 300.0)
    world.run(5.0)
    assert world.served(16)
    assert "not ready within" in read_looked(world.execute(person.ops, person.ops.look())).note


def test_a_target_that_the_budget_cannot_pay_is_refused_with_a_clear_line(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abc")
    person = pod_of(world, "a")
    reserve = Numbers().reserve
    world.execute(person.ops, person.ops.budget(1000, 24 + reserve - 1, 3_600_000, 16))
    assert read_outcome(world.execute(person.ops, person.ops.target(24))) == "budget"
    note = read_looked(world.execute(person.ops, person.ops.look())).note
    assert note == f"24 shards refused: {24 + reserve - 1} identifies are left today"
    world.run(5.0)
    assert world.served(16)


# ---------------------------------------------------------------- the identify gate


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_two_identifies_of_a_bucket_are_five_seconds_apart(valkey: redis.Redis, concurrency: int) -> None:
    """Ten pods, and two totals at once."""
    world = World(valkey, 3)
    world.discord.concurrency = concurrency
    for name in names(10):
        world.start(name)
    world.until(lambda: world.served(16), 200.0)
    world.discord.recommend(24)
    world.until(lambda: world.served(24), 500.0)
    assert world.discord.too_close() == []
    assert len(world.discord.identifies) == 16 + 24


def test_shards_of_a_bucket_identify_in_order(valkey: redis.Redis) -> None:
    world = World(valkey, 3)
    world.discord.concurrency = 4
    for name in "abc":
        world.start(name)
    world.until(lambda: world.served(16), 200.0)
    for bucket in range(4):
        order = [shard for _, _, shard in world.discord.identifies if shard % 4 == bucket]
        assert order[1:] == sorted(order[1:]), "the first comes before others are claimed"


def test_the_reserve_of_the_day_is_kept(valkey: redis.Redis) -> None:
    """A pending target may not touch it, whatever was left when it was begun; what serves may, but for the last."""
    world = fleet(valkey, "abc")
    person = pod_of(world, "a")
    numbers = Numbers()
    world.execute(person.ops, person.ops.target(24))
    world.until(lambda: person.state.head.pending is not None)
    world.discord.remaining = numbers.reserve + 3
    world.execute(person.ops, person.ops.budget(1000, numbers.reserve + 3, 86_400_000, 16))
    world.run(60.0)
    left = int(valkey.hget(world.keys.identify(), "remaining") or 0)  # pyright: ignore[reportArgumentType]
    assert left == numbers.reserve
    assert active(world)[1] == 16


# ---------------------------------------------------------------- what Discord closes for good


def lose_a_pod_and_its_sessions(world: World, name: str) -> int:
    """How many shards have to identify anew."""
    lost = pod_of(world, name)
    count = len(lost.state.owns)
    world.kill(lost)
    world.discord.sessions.clear()
    return count


@pytest.mark.parametrize("code", [4004, 4012, 4013, 4014])
def test_what_discord_closes_for_good_is_tried_once_and_no_more_until_a_person_says_so(
    valkey: redis.Redis, code: int
) -> None:
    world = fleet(valkey, "abcd")
    world.discord.refuses = lambda _slot: code
    before, lost = len(world.discord.identifies), lose_a_pod_and_its_sessions(world, "a")
    world.run(600.0)
    assert 0 < len(world.discord.identifies) - before <= lost, "a shard each at most, and those at the same moment"
    assert sum(len(pod.connections) for pod in world.living()) >= 16 - lost, "what is connected stays so"
    stops = read_looked(world.execute(pod_of(world, "b").ops, pod_of(world, "b").ops.look())).head.stops
    assert [stop.code for stop in stops] == [code]
    world.discord.refuses = lambda _slot: 0
    world.execute(pod_of(world, "b").ops, pod_of(world, "b").ops.retry())
    world.until(lambda: world.served(16))
    assert world.twice == []


def test_a_pending_target_that_discord_does_not_allow_is_aborted_at_once(valkey: redis.Redis) -> None:
    world = fleet(valkey, "abcd")
    version, _ = active(world)
    before, person = len(world.discord.identifies), pod_of(world, "a")
    world.discord.refuses = lambda slot: 4010 if slot[0] > version else 0
    world.execute(person.ops, person.ops.target(24))
    world.until(lambda: person.state.head.pending is not None)
    world.until(lambda: person.state.head.pending is None, 5.0)
    world.run(60.0)
    assert world.served(16)
    assert len(world.discord.identifies) - before <= 16, "one of each bucket at most"
    assert person.state.head.stops == ()
    world.discord.refuses = lambda _slot: 0
    world.execute(person.ops, person.ops.target(24))
    world.until(lambda: world.served(24), 300.0)


def test_when_discord_wants_more_shards_nobody_waits_for_three_rounds(valkey: redis.Redis) -> None:
    """4011 on one shard (Rapptz/discord.py#5128) is no end of the bot: it makes the pods agree on more."""
    world = fleet(valkey, "abcd")
    version, _ = active(world)
    world.discord.recommend(24)
    world.discord.refuses = lambda slot: 4011 if slot[0] == version else 0
    before, lost = len(world.discord.identifies), lose_a_pod_and_its_sessions(world, "a")
    waited_s = world.until(lambda: any(pod.state.head.pending for pod in world.living()))
    assert waited_s < 50.0, "a TTL, a guard, and less than two rounds"
    world.until(lambda: world.served(24), 300.0)
    assert len(world.discord.identifies) - before <= lost + 24
    world.until(lambda: not pod_of(world, "b").state.head.stops)


def test_a_vote_that_does_not_wait_says_nothing_of_identifies_that_were_told_long_ago(valkey: redis.Redis) -> None:
    """They were used meanwhile; to count them again would end in a token that Discord has reset."""
    world = fleet(valkey, "abcd")
    version, _ = active(world)
    world.discord.recommend(24)
    world.run(40.0)
    world.discord.blind |= set("abcd")
    world.run(100.0)
    valkey.hset(world.keys.identify(), "remaining", "60")
    world.discord.refuses = lambda slot: 4011 if slot[0] == version else 0
    lose_a_pod_and_its_sessions(world, "a")
    pod = pod_of(world, "b")
    world.until(lambda: bool(pod.state.head.stops))
    world.run(30.0)
    assert pod.state.head.pending is None
    remaining: Any = valkey.hget(world.keys.identify(), "remaining")
    assert 0 < int(remaining) <= 60
