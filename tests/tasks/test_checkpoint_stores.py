"""One suite for every store of checkpoints, on real servers: what `CheckpointStore` promises, tried to be broken."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from tasks.checkpoints import Gone, StoreAway, Superseded, TooLarge
from tasks.checkpoints.etcd_store import EtcdStore, b64
from tasks.checkpoints.redis_store import OPERATIONS, source
from tests.support.waiting import wait_until
from tests.tasks.stores import ANSWER_S, InEtcd, InRedis, Place, new_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.local.servers import Kind, Server
    from tests.support.etcd import Etcd
    from tests.support.servers import Client, StartServer

KINDS = ("valkey", "redis", "etcd")
BYTES = bytes(range(256))


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Place:
    """A fleet without checkpoints, once in each store."""
    if request.param == "etcd":
        etcd: Etcd = request.getfixturevalue("etcd")
        return InEtcd(etcd)
    servers: dict[Kind, Server] = request.getfixturevalue("servers")
    if request.param not in servers:
        pytest.fail("redis-server is not on the PATH (apt-get install redis-server)", pytrace=False)
    return InRedis(servers[request.param])


def test_what_was_saved_is_found_by_the_next_run(place: Place) -> None:
    task = new_id()
    first = place.store().open(task, "jobs.index")
    assert first.found is None
    first.save("running", 0.25, b"one")
    first.save("stopped", 0.625, b"two")
    found = place.store().open(task, "jobs.index").found
    assert found is not None
    assert (found.status, found.progress, found.context) == ("stopped", 0.625, b"two")


def test_a_run_that_saved_nothing_leaves_no_content(place: Place) -> None:
    task = new_id()
    place.store().open(task, "t")
    found = place.store().open(task, "t").found
    assert found is not None
    assert (found.progress, found.context) == (0.0, b"")


def test_a_run_that_was_killed_right_after_its_start_leaves_what_the_run_before_it_saved(place: Place) -> None:
    task = new_id()
    place.store().open(task, "t").save("running", 0.5, b"half")
    place.store().open(task, "t")
    found = place.store().open(task, "t").found
    assert found is not None
    assert (found.progress, found.context) == (0.5, b"half")


def test_the_fence_rises_with_each_run_and_never_repeats(place: Place) -> None:
    task, fences = new_id(), [0]
    for end in ("left", "cleared", "left", "lost", "left"):
        slot = place.store().open(task, "t")
        fences.append(slot.fence)
        if end == "cleared":
            assert slot.clear()
        if end == "lost":
            place.lose()
    assert fences == sorted(set(fences))


def test_a_frozen_twin_can_neither_overwrite_nor_clear(place: Place) -> None:
    task = new_id()
    twin = place.store().open(task, "t")
    twin.save("running", 0.1, b"twin")
    heir = place.store().open(task, "t")
    for _ in range(2):
        with pytest.raises(Superseded, match=task):
            twin.save("running", 0.9, b"twin again")
        assert not twin.clear()
    heir.save("running", 0.2, b"heir")
    with pytest.raises(Superseded):
        twin.save("failed", 0.9, b"twin again")
    found = place.store().open(task, "t").found
    assert found is not None
    assert found.context == b"heir"


def test_a_twin_that_wakes_when_the_work_is_done_brings_nothing_back(place: Place) -> None:
    task = new_id()
    twin = place.store().open(task, "t")
    heir = place.store().open(task, "t")
    heir.save("running", 0.9, b"heir")
    assert heir.clear()
    with pytest.raises(Gone, match=task):
        twin.save("running", 0.1, b"twin")
    assert not heir.clear()
    assert place.names() == []
    assert place.store().open(task, "t").found is None


def test_of_many_that_open_at_once_only_the_last_can_write(place: Place) -> None:
    task = new_id()
    store = place.store()
    with ThreadPoolExecutor(8) as threads:
        slots = [opening.result() for opening in [threads.submit(store.open, task, "t") for _ in range(8)]]
    fences = [slot.fence for slot in slots]
    assert len(set(fences)) == len(fences)
    wrote: list[int] = []
    for slot in slots:
        try:
            slot.save("running", 0.5, str(slot.fence).encode())
        except Superseded:
            continue
        wrote.append(slot.fence)
    assert wrote == [max(fences)]


def test_any_bytes_up_to_a_megabyte_come_back_as_they_were(place: Place) -> None:
    for content in (BYTES, b"", b"\n", b"{}\n{}", BYTES * 3900):
        task = new_id()
        place.store().open(task, "t").save("running", 0.5, content)
        found = place.store().open(task, "t").found
        assert found is not None
        assert found.context == content


@pytest.mark.parametrize("task", ["", "x" * 1025, "\udcff" * 400])
def test_an_id_that_is_too_long_is_refused_before_anything_is_sent(place: Place, task: str) -> None:
    with pytest.raises(TooLarge, match="allowed are 1 to 1024 bytes"):
        place.store().open(task, "t")


@pytest.mark.parametrize("task", ["é\n\0 ''\"{}:checkpoint", "task:x:checkpoint:fence", "\udcff", "x" * 1024])
def test_an_odd_id_is_an_id(place: Place, task: str) -> None:
    store = place.store()
    store.open(task, "t").save("running", 0.5, b"odd")
    found = place.store().open(task, "t").found
    assert found is not None
    assert found.context == b"odd"
    assert [listed.progress for listed in store.list()] == [0.5]


def test_a_checkpoint_expires_and_takes_everything_along(place: Place) -> None:
    store = place.store(ttl_s=1)
    slot = store.open(new_id(), "t")
    slot.save("running", 0.5, b"half")
    assert place.names()
    assert [name for name in place.names() if name.endswith("!")] == []
    wait_until(lambda: not place.names(), 15, what="the keys to expire", every_s=0.1)
    assert list(store.list()) == []
    with pytest.raises(Gone):
        slot.save("running", 0.6, b"more")


def test_a_save_renews_the_time_to_live(place: Place) -> None:
    store = place.store(ttl_s=2)
    task, idle = new_id(), new_id()
    slot = store.open(task, "t")
    slot.save("running", 0.0, b"kept")
    store.open(idle, "t").save("running", 0.0, b"left")

    def left() -> set[str]:
        slot.save("running", 0.5, b"kept")
        return {listed.task_id for listed in store.list()}

    wait_until(lambda: left() == {task}, 20, what="what nobody saves to expire, and nothing else", every_s=0.3)


def test_the_list_tells_how_far_each_is_and_since_when(place: Place) -> None:
    store = place.store()
    one, two = new_id(), new_id()
    store.open(one, "jobs.index").save("running", 0.25, b"12345")
    store.open(two, "jobs.report").save("failed", 1.0, b"")
    rows = sorted(store.list(), key=lambda row: row.progress)
    assert [row[:4] for row in rows] == [(one, "jobs.index", "running", 0.25), (two, "jobs.report", "failed", 1.0)]
    assert [row.size for row in rows] == [5, 0]
    before = {row.task_id: row.age_s for row in rows}
    slot = store.open(two, "jobs.report")

    def ages() -> dict[str, float]:
        slot.save("running", 1.0, b"")
        return {row.task_id: row.age_s for row in store.list()}

    wait_until(lambda: ages()[one] > before[one] + 1, 15, what="an age to grow", every_s=0.3)
    assert ages()[two] < ages()[one]


def test_fleets_keep_apart(place: Place) -> None:
    other = type(place)(place.server)  # type: ignore[attr-defined, call-arg]
    task = new_id()
    slot = place.store().open(task, "t")
    assert other.store().open(task, "t").found is None
    slot.save("running", 0.5, b"mine")
    assert len(list(other.store().list())) == 1


def test_what_others_wrote_into_the_store_is_given_as_it_is(place: Place) -> None:
    task = new_id()
    slot = place.store().open(task, "t")
    slot.save("running", 0.5, b"good")
    place.spoil(task, BYTES * 10)
    found = place.store().open(task, "t").found
    assert found is not None
    assert found.context == BYTES * 10


def test_a_key_of_another_type_or_without_sense_is_replaced(servers: dict[Kind, Server]) -> None:
    for server in servers.values():
        here = InRedis(server)
        task = new_id()
        here.client.set(here.keys.checkpoint(task), "a string")
        slot = here.store().open(task, "t")
        assert slot.found is None
        slot.save("running", 0.5, b"good")
        here.client.hset(here.keys.checkpoint(task), mapping={"fence": "x", "progress": "nan", "status": "\xff"})
        again = here.store().open(task, "t")
        assert again.fence > slot.fence
        assert again.found is not None
        assert (again.found.progress, again.found.status) == (0.0, "failed")
        here.client.set(here.keys.checkpoint(task), "a string")
        with pytest.raises(Gone):
            again.save("running", 0.5, b"x")
        assert not again.clear()
        assert list(here.store().list()) == []


def test_in_etcd_a_value_without_sense_is_replaced(etcd: Etcd) -> None:
    here = InEtcd(etcd)
    task = new_id()
    key = here.keys.checkpoint(task)
    for value in (b"", b"\xff\xfe", b"[]", b'{"progress": "x", "status": 7}\nabc'):
        here.asking.ask("kv/put", {"key": b64(key), "value": b64(value)})
        here.asking.ask("kv/put", {"key": b64(key + ":fence"), "value": b64(value)})
        list(here.store().list())
        slot = here.store().open(task, "t")
        slot.save("running", 0.5, b"good")
        found = here.store().open(task, "t").found
        assert found is not None
        assert found.context == b"good"


def bounded(call: Callable[[], object]) -> str:
    """What a call says that must fail within a few times the limit for an answer: one line."""
    start = time.monotonic()
    with pytest.raises(StoreAway) as raised:
        call()
    assert time.monotonic() - start < 10 * ANSWER_S
    return str(raised.value)


def test_a_server_that_is_frozen_or_gone_is_one_line_within_a_bounded_time(own_place: InRedis | InEtcd) -> None:
    store = own_place.store()
    slot = store.open("mine", "t")
    slot.save("running", 0.5, b"half")
    own_place.process.pause()
    said = [bounded(lambda: slot.save("running", 0.6, b"more")), bounded(lambda: list(store.list()))]
    own_place.process.resume()
    wait_until(lambda: _saves(slot), 20, what="the same slot to save again", every_s=0.2)
    own_place.server.kill()
    said += [bounded(call) for call in (lambda: store.open("mine", "t"), slot.clear)]
    assert all(line and "\n" not in line for line in said), said
    own_place.server.start()
    assert _saves(slot)
    found = own_place.store().open("mine", "t").found
    assert found is not None
    assert found.context == b"after"


def _saves(slot: object) -> bool:
    try:
        slot.save("running", 0.7, b"after")  # type: ignore[attr-defined]
    except StoreAway:
        return False
    return True


def test_a_full_redis_refuses_in_one_line_and_still_clears(start_server: StartServer) -> None:
    here = InRedis(start_server("valkey", {"maxmemory-policy": "noeviction"}))
    slot = here.store().open("mine", "t")
    slot.save("running", 0.5, b"half")
    here.client.config_set("maxmemory", "1")
    assert "maxmemory" in bounded(lambda: slot.save("running", 0.6, b"x" * 1000))
    assert slot.clear()


def test_etcd_asks_the_members_that_answer(etcd: Etcd) -> None:
    here = InEtcd(etcd)
    store = EtcdStore([("127.0.0.1", 1), ("127.0.0.1", etcd.port)], here.keys, 60)
    task = new_id()
    store.open(task, "t").save("running", 0.5, b"half")
    found = here.store().open(task, "t").found
    assert found is not None
    assert found.context == b"half"


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_script_says_what_it_takes_and_answers(name: str, valkey: Client) -> None:
    text = (files("tasks.checkpoints") / "lua" / f"{name}.lua").read_text()
    head = [line for line in text.splitlines() if line.startswith("--")]
    assert head[0].startswith(f"-- {name.upper()}: ")
    assert any(line.startswith("-- RETURNS ") for line in head)
    for letter in ("KEYS", "ARGV"):
        used = set(re.findall(rf"{letter}\[(\d+)\]", source(name)))
        told = set(re.findall(rf"^-- {letter}\[(\d+)(?:\.\.)?\]", "\n".join(head), re.MULTILINE))
        assert used <= told
    assert valkey.script_load(source(name))
