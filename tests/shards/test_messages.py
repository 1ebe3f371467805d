"""Events as messages: what a worker of any Celery app reads, where it goes, and under which id."""
# pyright: basic

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from kombu.connection import Connection

import throttle
from app.shards.delivering import load_callback
from app.shards.messages import MessageWriter
from app.shards.routing import parse_names, parse_routes
from tasks.shards.delivery.identity import guild_of, identity, is_unique
from tasks.shards.gateway.session import Event
from throttle.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Client

TASK = "bot.on_event"
MESSAGE = {"id": "11", "guild_id": "7", "content": "\u00fc \U0001f600"}


@pytest.fixture
def app(valkey: Client) -> Iterator[Celery]:
    with Celery("any", broker=valkey.url, set_as_current=False) as made:
        throttle.install(made)
        yield made


def writer(app: Celery, events: str = "", ordered: str = "") -> MessageWriter:
    return MessageWriter(app, "4711", parse_routes(events, ordered, "events"), TASK)


def heard(name: str = "MESSAGE_CREATE", data: Any = MESSAGE, *, session: str = "s", sequence: int = 5) -> Event:
    return Event(session, sequence, name, data, 10)


def written(app: Celery, event: Event, **routes: str) -> Any:
    return writer(app, **routes).write(event, identity(event.name, event.data))


def test_kombu_reads_what_is_pushed(app: Celery, valkey: Client) -> None:
    made = written(app, heard())
    valkey.lpush(made.queue, made.message)
    with Connection(valkey.url) as plain, plain.SimpleQueue("events") as queue:
        message = queue.get(timeout=5)
        args, kwargs, _ = message.decode()
        assert (args, kwargs) == (["MESSAGE_CREATE", MESSAGE], {})
        assert message.headers["task"] == TASK
        assert message.properties["correlation_id"] == message.headers["id"]
        message.ack()


def test_it_is_what_celery_itself_would_have_sent(app: Celery, valkey: Client) -> None:
    event = heard()
    made = written(app, event)
    task_id = json.loads(made.message)["headers"]["id"]
    app.send_task(TASK, [event.name, event.data], task_id=task_id, queue="events", ignore_result=True)
    sent = json.loads(str(valkey.rpop("events"), "utf-8"))  # pyright: ignore[reportArgumentType, reportCallIssue]
    ours = json.loads(made.message)
    for message in (sent, ours):
        message["properties"].pop("delivery_tag")
        message["properties"].pop("reply_to")
        for name in ("origin", "headroom_sent"):
            message["headers"].pop(name)
    assert ours == sent


def test_a_repetition_has_the_same_id_and_another_event_another(app: Celery) -> None:
    def id_of(event: Event) -> str:
        return writer(app).id_of(event, identity(event.name, event.data))

    typing: dict[str, Any] = {"guild_id": "7", "user_id": "1"}
    assert id_of(heard()) == id_of(heard(session="other", sequence=9)), "a message is written once"
    assert id_of(heard("TYPING_START", typing)) == id_of(heard("TYPING_START", typing))
    assert id_of(heard("TYPING_START", typing)) != id_of(heard("TYPING_START", typing, sequence=6))
    assert id_of(heard("TYPING_START", typing)) != id_of(heard("TYPING_START", typing, session="t"))


def test_events_go_where_the_routes_say(app: Celery) -> None:
    routes = {"events": "INTERACTION_CREATE=critical, *=-,MESSAGE_CREATE=messages"}
    made = writer(app, **routes)
    wanted = {name: made.wants(name) for name in ("INTERACTION_CREATE", "MESSAGE_CREATE", "TYPING_START")}
    assert wanted == {"INTERACTION_CREATE": True, "MESSAGE_CREATE": True, "TYPING_START": False}
    assert written(app, heard(), **routes).queue == "messages"
    assert parse_routes("A=x,*=y", "", "z").queues() == ["y", "x"]


def test_what_keeps_its_order_waits_in_a_line(app: Celery) -> None:
    made = written(app, heard(), ordered="MESSAGE_CREATE")
    assert json.loads(made.message)["args"] == ["MESSAGE_CREATE", MESSAGE]
    starter = json.loads(made.starter)
    assert starter["headers"]["task"] == "tasks.jobs.in_order.in_order"
    assert starter["headers"]["id"] == made.owner
    assert not written(app, heard("MESSAGE_CREATE", {"id": "3"}), ordered="*").starter, "a direct message has no guild"


@pytest.mark.parametrize("text", ["MESSAGE_CREATE", "message=x", "A=", "A=b c", "A=b,A=c"])
def test_routes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="^" + text.rsplit(",", maxsplit=1)[-1]):
        parse_routes(text, "", "z")


def test_names_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="what"):
        parse_names("MESSAGE_CREATE,what")


@pytest.mark.parametrize("name", ["nowhere:x", "json:nothing", "json:__name__"])
def test_a_callback_that_cannot_be_had_is_one_line(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^SHARD_CALLBACK='{name}': [^\n]+; allowed is module:function$"):
        load_callback(name)
    assert load_callback("json:dumps") is json.dumps


# ---------------------------------------------------------------- identities


def test_what_occurs_once_is_told_by_its_id() -> None:
    assert identity("MESSAGE_CREATE", {"id": "1", "content": "a"}) == identity("MESSAGE_CREATE", {"id": "1"})
    assert identity("MESSAGE_CREATE", {"id": "1"}) != identity("MESSAGE_CREATE", {"id": "2"})
    assert identity("MESSAGE_CREATE", {"id": "1"}) != identity("MESSAGE_DELETE", {"id": "1"})
    assert is_unique(identity("INTERACTION_CREATE", {"id": "1"}))


def test_edits_are_told_by_their_time() -> None:
    first, second = ({"id": "1", "edited_timestamp": f"2026-01-01T00:00:0{n}"} for n in (1, 2))
    assert identity("MESSAGE_UPDATE", first) == identity("MESSAGE_UPDATE", {**first, "embeds": []})
    assert identity("MESSAGE_UPDATE", first) != identity("MESSAGE_UPDATE", second)
    assert not is_unique(identity("MESSAGE_UPDATE", first))
    bare = {"id": "1", "embeds": [1]}
    assert identity("MESSAGE_UPDATE", bare) != identity("MESSAGE_UPDATE", {"id": "1", "embeds": [2]})


def test_reactions_are_told_by_who_what_and_where() -> None:
    reaction = {"user_id": "1", "message_id": "2", "channel_id": "3", "emoji": {"id": None, "name": "x"}}
    same = {**reaction, "member": {"nick": "other"}}
    assert identity("MESSAGE_REACTION_ADD", reaction) == identity("MESSAGE_REACTION_ADD", same)
    assert identity("MESSAGE_REACTION_ADD", reaction) != identity("MESSAGE_REACTION_REMOVE", reaction)
    other = {**reaction, "emoji": {"id": "5", "name": "x"}}
    assert identity("MESSAGE_REACTION_ADD", reaction) != identity("MESSAGE_REACTION_ADD", other)


@pytest.mark.parametrize("data", [{}, {"id": 5}, {"id": "x" * 30}, {"emoji": 3}, {"id": None, "a": {"b": [1, None]}}])
@pytest.mark.parametrize("name", ["MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_REACTION_ADD", "NEW_KIND"])
def test_anything_has_an_identity(name: str, data: dict[str, Any]) -> None:
    """What Discord sends otherwise than it says it does is told by all of it."""
    assert identity(name, data) == identity(name, dict(reversed(data.items())))
    assert not is_unique(identity(name, data))
    assert identity(name, data) != identity(name, {**data, "more": 1})
    assert guild_of(name, data) == 0
