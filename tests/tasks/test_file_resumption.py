"""The file jobs go on where they were: stopped at each point of their work, the result is the same to the byte."""

from __future__ import annotations

import errno
import gzip
import hashlib
import lzma
import os
import random
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tasks.checkpoints import Checkpoint, Limits
from tasks.checkpoints.run import Surroundings
from tasks.jobs import files, hashing
from tasks.jobs.folder import JobFile, JobFileError
from tasks.jobs.packing import METHODS, MIB, Gzip, Xz
from tests.tasks.stores import InRedis, new_id
from throttle.errors import TemporaryError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from app.local.servers import Kind, Server
    from tasks.checkpoints import CheckpointStore

UNPACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "lzma": lzma.decompress}


class Killed(BaseException):
    """The process ends here: nothing is saved, nothing is tidied."""


@pytest.fixture(scope="module")
def source() -> bytes:
    """Two and a half MiB: some that can be packed, some that cannot."""
    chance = random.Random(5)
    return b"".join(chance.randbytes(20_000) + b"%d around the clock\n" % n * 2_000 for n in range(45))[: 5 * MIB // 2]


@pytest.fixture
def store(servers: dict[Kind, Server]) -> CheckpointStore:
    """A fleet without checkpoints."""
    return InRedis(servers["valkey"]).store()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a file has several of them."""
    for packer in (Gzip, Xz):
        monkeypatch.setattr(packer, "block", 256 * 1024)
    monkeypatch.setattr(files, "CHUNK", 100_000)


def one_run(
    folder: Path,
    store: CheckpointStore | None,
    task: str,
    method: str = "gzip",
    *,
    dies_at: int = -1,
    reasons: list[str] | None = None,
) -> None:
    """One run of `compress`, which dies in the write of this number."""
    packer, ending = METHODS[method]
    around = Surroundings(task, "t", 1, compensate=([] if reasons is None else reasons).append)
    with JobFile(folder, "big") as file:
        work = files.Compression(file, packer, "big" + ending)
        written = iter(range(1_000_000))
        write = work.write

        def counted(packed: bytes, length: int, crc: int) -> tuple[int, int]:
            if next(written) == dies_at:
                os.write(work.descriptor, packed[: len(packed) // 2])
                raise Killed
            return write(packed, length, crc)

        work.write = counted
        checkpoint = Checkpoint(store, around, Limits(every_s=0.0, patience_s=0.0))
        checkpoint.__enter__()
        try:
            work.run(checkpoint)
            checkpoint.finish()
        finally:
            os.close(work.descriptor)


@pytest.mark.parametrize("method", ["gzip", "lzma"])
def test_killed_in_each_write_the_result_is_the_same_to_the_byte(
    tmp_path: Path, store: CheckpointStore, source: bytes, method: str
) -> None:
    (tmp_path / "big").write_bytes(source)
    result = tmp_path / f"big{METHODS[method][1]}"
    one_run(tmp_path, None, "whole", method)
    whole = result.read_bytes()
    assert UNPACK[method](whole) == source
    result.unlink()
    task, deaths = new_id(), 0
    for write in range(6, 1000, 4):
        try:
            one_run(tmp_path, store, task, method, dies_at=write)
        except Killed:
            deaths += 1
        else:
            break
    assert deaths > 3
    assert result.read_bytes() == whole
    assert {path.name for path in tmp_path.iterdir()} == {"big", result.name}
    assert list(store.list()) == []


def test_killed_again_and_again_while_it_copies_it_loses_nothing(
    tmp_path: Path, store: CheckpointStore, source: bytes
) -> None:
    (tmp_path / "big").write_bytes(source)
    task = new_id()
    with pytest.raises(Killed):
        one_run(tmp_path, store, task, dies_at=30)
    (before,) = store.list()
    for write in range(3):
        with pytest.raises(Killed):
            one_run(tmp_path, store, task, dies_at=write)
    (after,) = store.list()
    assert after.progress == before.progress > 0.5
    one_run(tmp_path, store, task)
    assert gzip.decompress((tmp_path / "big.gz").read_bytes()) == source
    assert not list(tmp_path.glob(".*"))


def test_programs_of_others_read_what_was_packed(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "big").write_bytes(source)
    one_run(tmp_path, None, "t", "gzip")
    answer = subprocess.run(["gzip", "-l", tmp_path / "big.gz"], capture_output=True, text=True, check=True)
    assert str(len(source)) in answer.stdout.split(), "one member, which says how large it is"
    assert subprocess.run(["gzip", "-dc", tmp_path / "big.gz"], capture_output=True, check=True).stdout == source


def cut_short(folder: Path) -> None:
    (partial,) = folder.glob(".*.partial")
    with partial.open("r+b") as file:
        file.truncate(10)


def damage(folder: Path) -> None:
    (partial,) = folder.glob(".*.partial")
    with partial.open("r+b") as file:
        file.seek(100)
        file.write(b"damaged")


def remove(folder: Path) -> None:
    (partial,) = folder.glob(".*.partial")
    partial.unlink()


def replace_by_link(folder: Path) -> None:
    (partial,) = folder.glob(".*.partial")
    partial.rename(folder / "elsewhere")
    partial.symlink_to(folder / "elsewhere")


def change_source(folder: Path) -> None:
    with (folder / "big").open("r+b") as file:
        file.write(b"changed")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (cut_short, "its partial file is damaged"),
        (damage, "its partial file is damaged"),
        (remove, "its partial file is gone"),
        (replace_by_link, "its partial file is gone"),
        (change_source, "the file has changed"),
    ],
)
def test_what_cannot_be_gone_on_from_is_begun_anew(
    tmp_path: Path, store: CheckpointStore, source: bytes, spoil: Callable[[Path], None], why: str
) -> None:
    (tmp_path / "big").write_bytes(source)
    task, reasons = new_id(), list[str]()
    with pytest.raises(Killed):
        one_run(tmp_path, store, task, dies_at=30)
    spoil(tmp_path)
    one_run(tmp_path, store, task, reasons=reasons)
    assert reasons == [why]
    assert gzip.decompress((tmp_path / "big.gz").read_bytes()) == (tmp_path / "big").read_bytes()
    assert not list(tmp_path.glob(".*"))


def test_what_another_version_has_packed_is_not_gone_on_from(
    tmp_path: Path, store: CheckpointStore, source: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "big").write_bytes(source)
    task, reasons = new_id(), list[str]()
    with pytest.raises(Killed):
        one_run(tmp_path, store, task, dies_at=30)
    monkeypatch.setattr(Gzip, "form", "gzip of next year")
    one_run(tmp_path, store, task, reasons=reasons)
    assert reasons[0].startswith("it was written by another version")


@pytest.mark.parametrize("context", [{}, {"mark": [1]}, {"mark": "x", "partial": 1, "source": 2, "form": 3}])
def test_a_context_of_something_else_is_begun_anew(
    tmp_path: Path, store: CheckpointStore, source: bytes, context: dict[str, Any]
) -> None:
    (tmp_path / "big").write_bytes(source)
    task, reasons = new_id(), list[str]()
    with Checkpoint(store, Surroundings(task, "t", 1), Limits()) as other:
        other.save(progress=0.5, **context)
    one_run(tmp_path, store, task, reasons=reasons)
    assert reasons == ["it is not one of a compression"]


def test_a_source_that_changes_while_it_is_read_makes_no_result(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "big").write_bytes(source)
    with JobFile(tmp_path, "big") as file:
        work = files.Compression(file, Gzip, "big.gz")
        with Checkpoint(None, Surroundings("t", "t", 1), Limits()) as checkpoint:
            change_source(tmp_path)
            with pytest.raises(JobFileError, match="'big' changed while it was read"):
                files.run_or_clean(work, checkpoint)
        os.close(work.descriptor)
    assert {path.name for path in tmp_path.iterdir()} == {"big"}


@pytest.mark.parametrize(("number", "kept"), [(errno.ENOSPC, False), (errno.EIO, True), (errno.ESTALE, True)])
def test_a_full_disk_gets_its_room_back_and_a_failing_one_is_gone_on_with(
    tmp_path: Path, store: CheckpointStore, source: bytes, number: int, *, kept: bool
) -> None:
    (tmp_path / "big").write_bytes(source)
    with JobFile(tmp_path, "big") as file:
        work = files.Compression(file, Gzip, "big.gz")

        def fail(packed: bytes, length: int, crc: int) -> tuple[int, int]:
            raise OSError(number, f"after {length}")

        work.write = fail
        with (
            pytest.raises(TemporaryError if kept else OSError, match="after 0"),
            Checkpoint(store, Surroundings(new_id(), "t", 1), Limits()) as cp,
        ):
            files.run_or_clean(work, cp)
        os.close(work.descriptor)
    assert bool(list(tmp_path.glob(".*.partial"))) is kept
    assert bool(list(store.list())) is kept


def test_a_checksum_goes_on_from_each_block(source: bytes) -> None:
    assert hashing.RESUMES, "here the library of hashlib has what is needed"
    expected = hashlib.sha256(source).hexdigest()
    for offset in (0, 64, 128, 64 * 1000, len(source) // 64 * 64):
        first = hashing.Resumable256()
        first.update(source[:offset])
        second = hashing.Resumable256(offset, first.state())
        second.update(source[offset:])
        assert second.hexdigest() == expected


def test_a_checksum_goes_on_beyond_four_gibibytes() -> None:
    """The count of bits has two halves."""
    offset = 2**32 + 64
    digest = hashing.Resumable256(offset, "00" * 32)
    digest.update(b"")
    assert (digest.context.low, digest.context.high) == (512, 8)


@pytest.mark.parametrize(
    ("offset", "state"), [(63, "00" * 32), (64, "00"), (64, ""), (64, "xx" * 32), (-64, "00" * 32)]
)
def test_what_is_no_state_of_a_checksum_is_refused(offset: int, state: str) -> None:
    with pytest.raises(ValueError, match=r"state|hexadecimal"):
        hashing.Resumable256(offset, state)


def test_within_a_block_there_is_no_state() -> None:
    digest = hashing.Resumable256()
    digest.update(b"x")
    with pytest.raises(ValueError, match="within a block"):
        digest.state()


@pytest.mark.parametrize(
    "context", [{}, {"source": 1, "offset": 64, "state": 5}, {"source": "same", "offset": 63, "state": "00" * 32}]
)
def test_a_checksum_that_cannot_go_on_begins_anew(
    tmp_path: Path, store: CheckpointStore, context: dict[str, Any]
) -> None:
    (tmp_path / "big").write_bytes(b"x" * 1000)
    task = new_id()
    with JobFile(tmp_path, "big") as file:
        if context.get("source") == "same":
            context = {**context, "source": file.identity()}
        with Checkpoint(store, Surroundings(task, "t", 1), Limits()) as other:
            other.save(progress=0.5, **context)
        with Checkpoint(store, Surroundings(task, "t", 1), Limits()) as checkpoint:
            digest, read = files.begun(checkpoint, file)
    assert read == 0
    digest.update(b"x")
    assert digest.hexdigest() == hashlib.sha256(b"x").hexdigest()


def test_where_the_state_cannot_be_had_the_file_is_read_again(
    tmp_path: Path, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "RESUMES", False)
    (tmp_path / "big").write_bytes(b"x")
    with (
        JobFile(tmp_path, "big") as file,
        Checkpoint(store, Surroundings(new_id(), "t", 1), Limits()) as checkpoint,
    ):
        digest, read = files.begun(checkpoint, file)
    assert (type(digest), read) == (type(hashlib.sha256()), 0)
