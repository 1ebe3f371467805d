"""What the model closes: faults of an earlier design, each as a test that fails on an operation written the other way.

A scenario raises AssertionError when the guarantee is broken. It runs with the real scripts, where it must pass, and
with each wrong variant, where it must not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.throttle.lab import BEAT_MS, TTL_MS, Lab
from throttle.scripts import Clash, Joined, Operations, Rule, Stale, Take

A, B, C, D, E = "a#1", "b#1", "c#1", "d#1", "e#1"
Scenario = Callable[[Lab], None]


def beat_does_not_mark(lab: Lab) -> None:
    """A beat leaves no busy mark behind for what a take just gave up (phantom slot)."""
    lab.join(A)
    lab.put("q", "m1")
    assert lab.take(A) == "m1"
    assert lab.ops.ack(A, 1, keep=True)
    assert lab.take(A) == "empty"
    lab.advance(BEAT_MS, A)
    assert lab.ops.counts().busy == 0


def return_is_one_step(lab: Lab) -> None:
    """What a dead member held is back in its queue the moment its membership is gone: nothing is stranded between."""
    lab.join(A, B)
    lab.put("q", "m1", "m2")
    assert [lab.take(A), lab.take(A)] == ["m1", "m2"]
    for _ in range(4):
        lab.advance(BEAT_MS, B)
    assert lab.queue("q") == ["m1", "m2"]
    assert lab.held(A) == {}
    assert not lab.client.exists(lab.keys.held(A))


def returned_mark_is_of_the_dead_alone(lab: Lab) -> None:
    """Who takes a returned message keeps its mark: the old owner was disowned before the push, not after it."""
    lab.join(A, B)
    lab.put("q", "m1")
    assert lab.take(A) == "m1"
    for _ in range(3):
        lab.advance(BEAT_MS, B)
    lab.advance(BEAT_MS)
    assert lab.take(B) == "m1"
    assert lab.ops.counts().busy == 1
    assert not lab.ops.ack(A, 1)
    assert lab.ops.counts().busy == 1
    assert lab.ops.holds(B, 1)


def returned_member_takes_nothing(lab: Lab) -> None:
    """A pod that was given up takes nothing before it has joined again."""
    lab.join(A, B)
    for _ in range(4):
        lab.advance(BEAT_MS, B)
    lab.put("q", "m1")
    assert lab.take(A) == "lost"
    assert lab.queue("q") == ["m1"]


def silent_member_takes_nothing(lab: Lab) -> None:
    """A pod that is silent for a TTL takes nothing, even when nobody has noticed yet."""
    lab.join(A)
    lab.advance(TTL_MS)
    lab.put("q", "m1")
    assert lab.take(A) == "lost"
    lab.ops.beat(A)
    assert lab.take(A) == "m1"


def acknowledgement_spares_other_takes(lab: Lab) -> None:
    """The end of one task does not free the slot under another one that still runs."""
    lab.join(A)
    lab.put("q", "m1", "m2")
    assert [lab.take(A), lab.take(A)] == ["m1", "m2"]
    assert lab.ops.ack(A, 1)
    assert lab.ops.counts().busy == 1


def join_again_spares_living_tasks(lab: Lab) -> None:
    """Joining again under the same name (a reconnect) changes nothing about what the member runs."""
    lab.join(A)
    lab.put("q", "m1", "m2")
    assert lab.take(A) == "m1"
    take = Take(1, 1, 0, b"q", b"m1")
    assert lab.ops.join(A, epoch=A, next_id=2, running=[take]) == Joined(A)
    assert lab.ops.counts().busy == 1
    assert lab.take(A) == "m2"
    assert lab.ops.ack(A, 1)


def leaving_returns_what_is_held(lab: Lab) -> None:
    """Who leaves leaves nothing behind."""
    lab.join(A, B)
    lab.put("q", "m1", "m2", "m3")
    assert [lab.take(A), lab.take(A)] == ["m1", "m2"]
    assert lab.ops.leave(A) == 2
    assert lab.queue("q") == ["m1", "m2", "m3"]
    assert not lab.client.exists(lab.keys.held(A))


def room_in_a_busy_pod_is_under_the_rule(lab: Lab) -> None:
    """A busy pod with room is not admitted either while the shrunken fleet has too many other busy pods."""
    lab.join(A, B, C, D, E)
    lab.put("q", *(f"m{n}" for n in range(9)))
    assert [lab.take(pod) for pod in (A, B, C, D)] == ["m0", "m1", "m2", "m3"]
    assert lab.take(A) == "m4"
    lab.ops.leave(E)  # capacity 3, four busy
    assert lab.take(A) == "denied"
    assert lab.ops.ack(B, 1)
    assert lab.take(A) == "m5"


def one_publication_in_two_queues(lab: Lab) -> None:
    """The same message in two queues is two messages, each acknowledged and returned on its own."""
    lab.join(A, B)
    lab.put("q", "same")
    lab.put("r", "same")
    assert lab.take(A, ("q",)) == "same"
    assert lab.take(B, ("r",)) == "denied"  # one of two pods may work
    assert lab.take(A, ("r",)) == "same"
    assert lab.ops.ack(A, 1)
    assert lab.ops.leave(A) == 1
    assert (lab.queue("q"), lab.queue("r")) == ([], ["same"])


def returned_to_its_own_source(lab: Lab) -> None:
    """A message goes back to the list that it came from and to no other, whatever it says about itself."""
    raw = '{"properties": {"delivery_info": {"exchange": "elsewhere", "routing_key": "r"}}}'
    lab.join(A)
    lab.put("q\x06\x163", raw)
    assert lab.take(A, ("q", "q\x06\x163", "r")) == raw
    assert lab.ops.back(A, 1, "head")
    assert lab.queue("q\x06\x163") == [raw]
    assert lab.queue("r") == []


def coming_for_another_queue(lab: Lab) -> None:
    """A pod on its way to one queue does not count as on its way to another."""
    lab.join(A, B, C)
    assert lab.take(A, ("q",)) == "empty"
    assert lab.take(B, ("r",)) == "empty"
    lab.put("q", "m1")
    assert lab.rung(A, B) == [A]
    lab.client.lpush("r", "m2")  # a producer that rings no bell
    lab.ops.beat(C)  # which must find B, though A is on its way
    assert lab.rung(A, B) == [A, B]


def lost_answer_makes_no_phantom(lab: Lab) -> None:
    """The same take id again is the same message: an answer that was lost holds nothing twice."""
    lab.join(A)
    lab.put("q", "m1", "m2")
    first = lab.ops.take(A, 1, (), ("q",))
    assert lab.ops.take(A, 1, (), ("q",)) == first
    assert lab.queue("q") == ["m2"]
    assert len(lab.held(A)) == 1


def kept_slot_ends_by_itself(lab: Lab) -> None:
    """A slot that was kept for a TAKE which never came is free after a second, not after three."""
    lab.join(A, B)
    lab.put("q", "m1", "m2")
    assert lab.take(A) == "m1"
    assert lab.ops.ack(A, 1, keep=True)
    assert lab.take(B) == "denied"
    lab.advance(1001)
    assert lab.take(B) == "m2"


def early_acknowledgement_keeps_the_slot(lab: Lab) -> None:
    """A task that was acknowledged early still occupies its pod until it ends, and is never delivered again."""
    lab.join(A, B)
    lab.put("q", "m1", "m2")
    assert lab.take(A) == "m1"
    assert lab.ops.empty(A, 1)
    assert lab.take(B) == "denied"
    lab.ops.leave(A)
    assert lab.queue("q") == ["m2"]


def order_across_members(lab: Lab) -> None:
    """Returned together, the messages of several members stand in the order in which they were taken."""
    lab.join(A, B, C, D, E)
    lab.put("q", "m1", "m2", "m3", "m4")
    assert [lab.take(pod) for pod in (B, A, B, A)] == ["m1", "m2", "m3", "m4"]
    for _ in range(4):
        lab.advance(BEAT_MS, C, D, E)
    assert lab.queue("q") == ["m1", "m2", "m3", "m4"]


def restart_under_the_name(lab: Lab) -> None:
    """A container that restarts under its name ends its old incarnation after one beat of silence, not before."""
    lab.join(A)
    lab.put("q", "m1")
    assert lab.take(A) == "m1"
    lab.advance(BEAT_MS - 1)
    assert isinstance(lab.ops.join("a#2"), Clash)
    lab.advance(1)
    assert lab.ops.join("a#2") == Joined(A)
    assert lab.take("a#2") == "m1"
    assert lab.ops.beat(A).standing == "lost"
    assert not lab.ops.ack(A, 1)


def draining_member_counts_nowhere(lab: Lab) -> None:
    """A draining pod is neither counted nor busy: a deploy does not stall behind its long task."""
    lab.join(A, B)
    lab.put("q", "m1", "m2")
    assert lab.take(A) == "m1"
    assert lab.ops.drain(A) == "draining"
    assert lab.take(B) == "m2"
    assert lab.take(A) == "lost"
    assert lab.ops.beat(A).standing == "draining"
    assert lab.ops.ack(A, 1)


def guard_after_mass_silence(lab: Lab) -> None:
    """When most of the fleet falls silent at once nothing is returned for one more TTL; then it is."""
    lab.join(A, B, C, D, E)
    lab.put("q", "m1")
    assert lab.take(A) == "m1"
    for _ in range(3):
        lab.advance(BEAT_MS, D, E)
    assert lab.held(A)
    for _ in range(2):
        lab.advance(BEAT_MS, D, E)
    assert lab.held(A)
    lab.advance(BEAT_MS, D, E)
    assert lab.queue("q") == ["m1"]


def guard_when_many_vanish_one_after_the_other(lab: Lab) -> None:
    """Pods that die together count as dead up to a beat apart, by their last beats: no look sees many at once."""
    lab.join(A, B, C, D, E)
    lab.put("q", "m1")
    assert lab.take(A) == "m1"
    for pod in (A, B, C):  # the last beats of those that die
        lab.advance(BEAT_MS // 4, pod)
    for _ in range(30):
        lab.advance(BEAT_MS // 5, D, E)
        if lab.ops.counts().silent:
            assert lab.held(A)
        if lab.ops.counts().silent == 3:
            break
    assert lab.ops.counts().silent == 3
    lab.advance(TTL_MS, D, E)
    lab.advance(1, D)
    assert lab.queue("q") == ["m1"]


def guard_is_armed_once(lab: Lab) -> None:
    """Pods that join during the guard do not put it off again and again."""
    lab.join(A, B, C, D, E)
    lab.put("q", "m1")
    assert lab.take(A) == "m1"
    lab.advance(TTL_MS)
    for n in range(3):
        lab.join(f"f{n}#1")  # each finds that nobody has beaten lately
        lab.advance(2 * BEAT_MS + 1)
    lab.ops.beat("f2#1")
    assert lab.queue("q") == ["m1"]


def second_outage_is_not_believed_either(lab: Lab) -> None:
    """Redis is away again soon after it was: the guard of the first time does not count for the second."""
    lab.join(A, B, C, D)
    lab.put("q", "m1")
    assert lab.take(A) == "m1"
    for _ in range(2):
        lab.advance(TTL_MS + 1, B, A, C, D)  # away for longer than a TTL; then all beat, one after the other
        assert lab.held(A)
        lab.advance(BEAT_MS, A, B, C, D)


def second_outage_beside_a_silent_pod_is_not_believed_either(lab: Lab) -> None:
    """Likewise when a pod that was silent before the first still is: those who beat between them are not given up."""
    lab.join(A, B, C, D)
    lab.put("q", "m1")
    assert lab.take(A) == "m1"
    lab.advance(TTL_MS + 1, B, A, C)  # away for longer than a TTL; D is not back
    lab.advance(BEAT_MS, B, A, C)
    lab.advance(TTL_MS + 1, B)  # away again: the guard of the first time has passed meanwhile
    assert lab.held(A)
    lab.advance(BEAT_MS, A, C)
    assert lab.held(A)
    for _ in range(3):
        lab.advance(BEAT_MS, A, B, C)
    counts = lab.ops.counts()
    assert (counts.alive, counts.silent) == (3, 0), "D is given up in the end"


def short_outage_is_not_believed_either(lab: Lab) -> None:
    """Redis is away for less than a TTL. Who is back first must not take who comes a little later for dead."""
    lab.join(A, B)
    lab.put("q", "m1")
    assert lab.take(A) == "m1"
    lab.advance(BEAT_MS // 2, B)
    lab.advance(TTL_MS - BEAT_MS, B)  # away for five sixths of a TTL: nobody counts as dead yet
    lab.advance(BEAT_MS // 2 + 100, B)  # now A does
    assert lab.held(A)
    assert lab.take(B) == "empty"
    lab.advance(BEAT_MS // 2, A)
    assert lab.ops.ack(A, 1)


def snapshot_from_before(lab: Lab) -> None:
    """Redis came back with an older snapshot: what was acknowledged since is dropped at the next join."""
    lab.join(A)
    lab.put("q", "m1", "m2")
    assert [lab.take(A), lab.take(A)] == ["m1", "m2"]
    running = [Take(2, 2, 0, b"q", b"m2")]  # m1 was acknowledged, but Redis forgot
    assert lab.ops.join(A, epoch=A, next_id=3, running=running) == Joined(A)
    assert list(lab.held(A)) == [2]


def awaited_answer_survives_a_join(lab: Lab) -> None:
    """The take whose answer was lost when the connection broke is still there after the join that follows."""
    lab.join(A)
    lab.put("q", "m1")
    lab.ops.take(A, 1, (), ("q",))
    assert lab.ops.join(A, epoch=A, next_id=1) == Joined(A)
    assert lab.take(A, ("q",)) == "m1"


def data_loss_holds_again(lab: Lab) -> None:
    """Redis lost everything: what a member runs is held again when it joins, and nothing that it does not run."""
    lab.join(A)
    lab.put("q", "m1", "m2")
    assert [lab.take(A), lab.take(A)] == ["m1", "m2"]
    lab.client.flushall()
    lab.advance(1)
    assert lab.ops.beat(A).standing == "lost"
    running = [Take(1, 1, 0, b"q", b"m1"), Take(2, 2, 0, b"q", b"m2")]
    assert lab.ops.join("a#2", epoch=A, next_id=3, running=running, emptied={2}) == Joined("a#2")
    assert lab.ops.counts().busy == 1
    assert lab.ops.leave("a#2") == 1
    assert lab.queue("q") == ["m1"]


def endless_deliveries_end(lab: Lab) -> None:
    """A message that pods keep dying over goes to the dead letters after max_deliveries, with its reason."""
    lab.join("z#1")
    lab.put("q", "poison", "good")
    for n in range(3):
        lab.join(f"a#{n}")
        assert lab.take(f"a#{n}") == "poison"
        lab.advance(BEAT_MS, "z#1")
    lab.join("a#9")
    assert lab.take("a#9") == "good"
    ((_, letter),) = lab.client.xrange(lab.keys.dead())
    assert letter[b"raw"] == b"poison"
    assert (letter[b"source"], letter[b"deliveries"], letter[b"reason"]) == (b"q", b"3", b"pod lost")


def parked_until_due(lab: Lab) -> None:
    """A parked message holds no slot, survives its member and comes back to the head when it is due."""
    lab.join(A, B)
    lab.put("q", "later", "m2")
    assert lab.take(A) == "later"
    assert lab.ops.park(A, 1, lab.now_ms + 1500) == "parked"
    assert lab.ops.counts().busy == 0
    lab.ops.leave(A)
    lab.advance(1499)
    assert lab.queue("q") == ["m2"]
    lab.advance(1, B)
    assert lab.queue("q") == ["later", "m2"]


def index_follows_what_is_held(lab: Lab) -> None:
    """Whatever befell the index of busy pods, a beat of a pod that holds something sets it right."""
    lab.join(A, B)
    lab.put("q", "m1", "m2")
    assert lab.take(A) == "m1"
    lab.client.delete(lab.keys.busy())
    lab.advance(BEAT_MS, A, B)
    assert lab.take(B) == "denied"


def index_has_no_end_of_its_own(lab: Lab) -> None:
    """A task may run for days: nothing that says so runs out meanwhile."""
    lab.join(A)
    lab.put("q", "m1")
    assert lab.take(A) == "m1"
    lab.advance(BEAT_MS, A)
    for key in (lab.keys.busy(), lab.keys.held(A), lab.keys.alive()):
        assert lab.client.ttl(key) == -1


def late_take_takes_nothing(lab: Lab) -> None:
    """A TAKE from a connection that was given up arrives after its message was acknowledged: it holds nothing."""
    lab.join(A)
    lab.put("q", "m1", "m2")
    assert lab.take(A) == "m1"
    lab.ops.ack(A, 1)
    assert lab.ops.take(A, 1, (), ("q",)) == Stale()
    assert lab.queue("q") == ["m2"]
    assert lab.held(A) == {}


def late_take_spares_an_early_acknowledged_task(lab: Lab) -> None:
    """The same while the work of that message still goes on: its empty entry is not filled again."""
    lab.join(A)
    lab.put("q", "m1", "m2")
    assert lab.take(A) == "m1"
    lab.ops.empty(A, 1)
    assert lab.ops.take(A, 1, (), ("q",)) == Stale()
    assert lab.queue("q") == ["m2"]
    assert lab.held(A) == {1: b""}


def acknowledgements_come_along(lab: Lab) -> None:
    """Earlier takes end with the next TAKE, those of another member do not, and their slot is given back at once."""
    lab.join(A, B)
    lab.put("q", "m1", "m2", "m3", "m4")
    assert [lab.take(A), lab.take(A)] == ["m1", "m2"]
    assert lab.take_with_acks(A, 3, acks=[1, 2]) == ("m3", set())
    assert lab.held(A).keys() == {3}
    assert lab.take_with_acks(A, 3, acks=[1, 2]) == ("m3", {1, 2}), "asked again: the same message, no second effect"
    assert lab.ops.counts().busy == 1
    assert lab.take_with_acks(B, 7, acks=[3]) == ("denied", {3})
    assert lab.held(A).keys() == {3}
    lab.client.delete("q")
    assert lab.take_with_acks(A, 4, acks=[3]) == ("empty", set())
    assert lab.held(A) == {}
    assert lab.ops.counts().busy == 0


def acknowledgements_of_who_takes_nothing(lab: Lab) -> None:
    """A member that may take no more has its acknowledgements accepted, and keeps no slot."""
    lab.join(A)
    lab.put("q", "m1", "m2")
    assert lab.take(A) == "m1"
    lab.advance(TTL_MS)
    assert lab.take_with_acks(A, 2, acks=[1]) == ("lost", set())
    assert lab.held(A) == {}
    lab.ops.beat(A)
    assert lab.ops.counts().busy == 0
    assert lab.queue("q") == ["m2"]


def acknowledgements_of_a_late_take(lab: Lab) -> None:
    """A TAKE that arrives late takes nothing; what went along is over all the same, and the slot with it."""
    lab.join(A)
    lab.put("q", "m1", "m2")
    assert [lab.take(A), lab.take(A)] == ["m1", "m2"]
    assert lab.ops.ack(A, 2)
    assert lab.take_with_acks(A, 2, acks=[1]) == ("stale", set())
    assert lab.held(A) == {}
    assert lab.ops.counts().busy == 0


def late_permit_is_none(lab: Lab) -> None:
    """A request for a permit that arrives after its release leaves no phantom."""
    lab.join(A)
    assert lab.ops.acquire(A, 1)
    assert lab.ops.ack(A, 1)
    assert not lab.ops.acquire(A, 1)
    assert lab.ops.counts().busy == 0


def late_join_spares_what_it_does_not_know(lab: Lab) -> None:
    """A JOIN that was stuck on its way drops nothing that was taken after it was written."""
    lab.join(A)
    lab.put("q", "m1", "m2", "m3")
    assert lab.take(A) == "m1"
    lab.ops.ack(A, 1)
    assert [lab.take(A), lab.take(A)] == ["m2", "m3"]
    assert lab.ops.join(A, epoch=A, next_id=2) == Joined(A)
    assert list(lab.held(A)) == [2, 3]


def snapshot_from_before_a_way_back(lab: Lab) -> None:
    """Redis came back from before a message was put back or parked: it is not lost, it goes back again."""
    lab.join(A)
    lab.put("q", "m1", "m2")
    assert [lab.take(A), lab.take(A)] == ["m1", "m2"]
    assert lab.ops.join(A, epoch=A, next_id=3, given_back=[1]) == Joined(A)  # 2 was acknowledged
    assert lab.queue("q") == ["m1"]
    assert lab.held(A) == {}


def each_by_its_own_ttl(lab: Lab) -> None:
    """A pod is silent by its own TTL, not by that of the pod which looks: a rolling change kills nobody."""
    lab.join(A, B)
    lab.put("q", "m1")
    assert lab.take(A) == "m1"
    short = Operations(lab.client, lab.keys, Rule(0.8, TTL_MS // 3, 3))
    short.script = lab.ops.script
    lab.advance(BEAT_MS + 1)
    assert short.beat(B).returned == 0
    lab.advance(BEAT_MS + 1)
    assert short.beat(B).returned == 0
    assert lab.held(A)
    lab.ops.beat(A)
    assert lab.ops.counts().alive == 2


def due_is_what_the_server_says(lab: Lab) -> None:
    """A pod whose clock is behind parks what is due already: it is told so and keeps the message, without a loop."""
    lab.join(A)
    lab.put("q", "m1")
    assert lab.take(A) == "m1"
    assert lab.ops.park(A, 1, lab.now_ms) == "due"
    assert list(lab.held(A)) == [1]
    assert lab.ops.park(A, 1, lab.now_ms + 1) == "parked"


def queue_that_takes_nothing_back(lab: Lab) -> None:
    """A message whose queue is no list any more is not lost, and does not keep the others from going back."""
    lab.join(A, B)
    lab.put("q", "m1", "m2")
    lab.put("r", "m3")
    assert [lab.take(A), lab.take(A), lab.take(A)] == ["m1", "m2", "m3"]
    lab.client.delete("q")
    lab.client.set("q", "no list")
    assert lab.ops.back(A, 1, "head")
    lab.ops.leave(A)
    assert lab.queue("r") == ["m3"]
    letters = [letter[b"raw"] for _, letter in lab.client.xrange(lab.keys.dead())]
    assert letters == [b"m1", b"m2"]


def queue_of_another_type_is_passed_over(lab: Lab) -> None:
    """A string at the name of a queue stops no other queue, and what is acknowledged on the way is done."""
    lab.join(A)
    lab.put("r", "m1", "m2")
    lab.client.set("q", "no list")
    lab.client.set("c", "no list")
    assert lab.take(A) == "m1"
    answer = lab.ops.take_command(A, 2, ("c",), ("q", "r"), [1])
    raw = lab.client.execute_command(*answer)
    assert lab.ops.parse_odd(raw) == (b"c", b"q")
    assert lab.ops.parse_not_mine(raw) == frozenset()
    assert [entry.rpartition(b"r")[2] for entry in lab.held(A).values()] == [b"m2"]
    assert lab.ops.ack(A, 2)
    lab.ids[A] = 2
    lab.client.delete("q", "c")
    lab.put("q", "m3")
    assert lab.take(A) == "m3"


def thousands_of_queues(lab: Lab) -> None:
    """As many queues as there may be: Lua hands over some thousands of keys at once."""
    lab.join(A)
    queues = tuple(f"q{number}" for number in range(9000))
    assert lab.take(A, queues) == "empty"
    lab.put(queues[-1], "m1")
    assert lab.take(A, queues) == "m1"
    assert lab.ops.ack(A, 1, keep=True, work=queues)


RETURN = "push(r[3], r[4], r[2], 'head', lost and {r[5], 'pod lost', lost})"
CLOSED: list[tuple[Scenario, dict[str, str]]] = [
    (beat_does_not_mark, {"if call('EXISTS', held(m)) == 1 then mark(m) end": "call('ZADD', BUSY, 'inf', m)"}),
    (return_is_one_step, {"call('DEL', held(x))\n": ""}),
    (return_is_one_step, {RETURN: "call('LPUSH', ns .. 'restore', r[4])"}),
    (return_is_one_step, {RETURN: RETURN.replace("head", "tail")}),
    (returned_mark_is_of_the_dead_alone, {"if not e then return false end":
                                          "if not e then call('DEL', BUSY) return false end"}),
    (returned_member_takes_nothing, {"if not living(m) then return nothing(-1) end": ""}),
    (silent_member_takes_nothing, {"return dead_at and tonumber(dead_at) > now_ms": "return dead_at"}),
    (acknowledgement_spares_other_takes, {"if call('EXISTS', held(x)) == 1 then call('ZADD', BUSY, 'inf', x)":
                                          "if false then"}),
    (acknowledgement_spares_other_takes, {"call('HDEL', held(m), id)\n  log('ack'":
                                          "call('DEL', held(m))\n  log('ack'"}),
    (join_again_spares_living_tasks, {"if not runs[id] and": "if true and"}),
    (join_again_spares_living_tasks, {"if old and old ~= m then gone({old}, 'superseded') end":
                                      "if old then gone({old}, 'superseded') end"}),
    (leaving_returns_what_is_held, {"local returned = gone({m}, 'leave')":
                                    "local returned = call('ZREM', ALIVE, m) + 1"}),
    (room_in_a_busy_pod_is_under_the_rule, {"local admitted = others < cap":
                                            "local admitted = others < cap or occupies(m) == 1"}),
    (one_publication_in_two_queues, {"call('HSET', held(m), id, e)": "call('HSET', held(m), redis.sha1hex(e), e)"}),
    (returned_to_its_own_source, {"push(source, raw, n + tonumber(ARGV[8]), ARGV[7], failed":
        "push(cjson.decode(raw).properties.delivery_info.routing_key, raw, 0, 'head', failed"}),
    (coming_for_another_queue, {"return ns .. 'coming:' .. key": "return ns .. 'coming'"}),
    (lost_answer_makes_no_phantom, {"local again = call('HGET', held(m), id)": "local again = nil"}),
    (kept_slot_ends_by_itself, {"local KEEP_MS = 1000": "local KEEP_MS = 3000"}),
    (early_acknowledgement_keeps_the_slot, {"call('HSET', held(m), ARGV[6], '')":
                                            "call('HDEL', held(m), ARGV[6]) mark(m)"}),
    (early_acknowledgement_keeps_the_slot, {"call('HSET', held(m), ARGV[6], '')": ""}),
    (order_across_members, {"table.sort(back, function(a, b) return a[1] > b[1] end)": ""}),
    (restart_under_the_name, {"beat > now_ms - ttl / 3 then": "beat > now_ms - ttl then"}),
    (restart_under_the_name, {"beat > now_ms - ttl / 3 then": "false then"}),
    (draining_member_counts_nowhere, {"call('ZADD', DRAINING, dead_at, m)\n  mark(m)":
                                      "call('ZADD', DRAINING, dead_at, m)"}),
    (draining_member_counts_nowhere, {"call('ZREM', ALIVE, m)\n  call('ZADD', DRAINING, dead_at, m)":
                                      "call('ZADD', DRAINING, dead_at, m)"}),
    (guard_after_mass_silence, {"if guard and guard > now_ms then return 0 end": ""}),
    (guard_when_many_vanish_one_after_the_other, {"quiet * 2 > all": "#silent * 2 > all"}),
    (guard_is_armed_once, {" and not guard_against(silent_members()) then arm_guard()": " then arm_guard()"}),
    (short_outage_is_not_believed_either, {"if before < now_ms - QUIET * beat_ms then": "if false then"}),
    (snapshot_from_before, {"if not runs[id] and": "if false and"}),
    (awaited_answer_survives_a_join, {"local runs = {[next_id] = true}": "local runs = {}",
                                      "tonumber(id) < awaited": "true"}),
    (data_loss_holds_again, {"if epoch ~= current then": "if false then"}),
    (data_loss_holds_again, {"source == '' and '' or entry(": "entry("}),
    (endless_deliveries_end, {">= limit) then": ">= 99) then"}),
    (parked_until_due, {"if e ~= '' then call('ZADD', PARKED, ARGV[7], e) end": ""}),
    (parked_until_due, {"if let_go(ARGV[6]) then ring_any() end\nreturn 1": "call('HDEL', held(m), ARGV[6]) return 1"}),
    (
        second_outage_beside_a_silent_pod_is_not_believed_either,
        {"if newest_beat() < now_ms - ttl_ms then return nil end": ""},
    ),
    (
        second_outage_is_not_believed_either,
        {
            "if last_beat(x) <= guard - ttl_ms then return guard end": "return guard",
            "if newest_beat() < now_ms - ttl_ms then return nil end": "",
        },
    ),
    (index_follows_what_is_held, {"if call('EXISTS', held(m)) == 1 then mark(m) end": ""}),
    (index_has_no_end_of_its_own, {"call('ZADD', BUSY, 'inf', x)":
                                   "call('ZADD', BUSY, 'inf', x) call('EXPIRE', BUSY, 60)"}),
    (late_take_takes_nothing, {"if made_before(id) then": "if false then"}),
    (late_take_spares_an_early_acknowledged_task, {"if made_before(id) then": "if false then"}),
    (acknowledgements_come_along, {"for i = 8, #ARGV do": "for i = 9, #ARGV do"}),
    (acknowledgements_come_along, {"call('HDEL', held(m), id)\n  log('ack'": "log('ack'"}),
    (acknowledgements_come_along, {"not_mine[#not_mine + 1] = ARGV[i]": ""}),
    (acknowledgements_of_who_takes_nothing, {"if not living(m) then": "if #ARGV == 7 and not living(m) then"}),
    (acknowledgements_of_who_takes_nothing, {"if #not_mine < #ARGV - 7 and slot_freed() then ring_any() end": ""}),
    (acknowledgements_of_a_late_take, {"if #not_mine < #ARGV - 7 and slot_freed() then ring_any() end": ""}),
    (late_permit_is_none, {"made_before(ARGV[6]) or": ""}),
    (late_join_spares_what_it_does_not_know, {" and tonumber(id) < awaited": ""}),
    (snapshot_from_before_a_way_back, {"seq and given_back:find(": "seq and (''):find("}),
    (each_by_its_own_ttl, {"silent_in[index] or call('ZRANGEBYSCORE', index, '-inf', now_ms)":
                           "silent_in[index] or call('ZRANGEBYSCORE', index, '-inf', now_ms + 2 * ttl_ms)"}),
    (due_is_what_the_server_says, {"if tonumber(ARGV[7]) <= now_ms then return 2 end": ""}),
    (queue_that_takes_nothing_back, {"redis.pcall(": "redis.call("}),
    (queue_of_another_type_is_passed_over, {"redis.pcall('RPOP', key)": "call('RPOP', key)"}),
    (queue_of_another_type_is_passed_over, {"odd[#odd + 1] = key": ""}),
    (queue_of_another_type_is_passed_over, {"found = redis.pcall(unpack(command))": "found = call(unpack(command))"}),
    (thousands_of_queues, {"local MANY, odd = 1000, {}": "local MANY, odd = 100000, {}"}),
]  # fmt: skip
SCENARIOS = list(dict.fromkeys(scenario for scenario, _ in CLOSED))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_holds(server: Any, scenario: Scenario) -> None:
    scenario(Lab(server))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_holds_on_a_server_before_7(server: Any, scenario: Scenario) -> None:
    """Without LMPOP: each queue is asked."""
    lab = Lab(server, changes={"if redis.REDIS_VERSION_NUM then": "if false then"})
    before = lmpops(server)
    scenario(lab)
    assert lmpops(server) == before


def lmpops(server: Any) -> int:
    """How often LMPOP ran."""
    return int(server.info("commandstats").get("cmdstat_lmpop", {}).get("calls", 0))


@pytest.mark.parametrize(("scenario", "changes"), CLOSED, ids=[f"{s.__name__}-{n}" for n, (s, _) in enumerate(CLOSED)])
def test_fails_when_written_the_other_way(server: Any, scenario: Scenario, changes: dict[str, str]) -> None:
    lab = Lab(server, changes=changes)
    with pytest.raises((AssertionError, redis.ResponseError)):
        scenario(lab)
    assert lab.ops.used == set(changes), "the variant changes nothing: its text has moved"
