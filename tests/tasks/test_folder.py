"""A job's file cannot be led outside the jobs folder, whatever a message says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tasks.jobs.folder import JobFile, JobFileError

if TYPE_CHECKING:
    from pathlib import Path


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts, needs no paths


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A jobs folder with a file, a folder, and links in it, beside a secret."""
    (tmp_path / "secret").write_text("secret")
    jobs = tmp_path / "jobs"
    (jobs / "deep" / "er").mkdir(parents=True)
    (jobs / "plain").write_text("plain")
    (jobs / "deep" / "er" / "file").write_text("deep")
    (jobs / "out").symlink_to(tmp_path / "secret")
    (jobs / "inside").symlink_to("plain")
    (jobs / "away").symlink_to(tmp_path)
    os.mkfifo(jobs / "pipe")
    return jobs


def read(folder: Path, name: str) -> bytes:
    with JobFile(folder, name) as file:
        return file.read(100)


def test_relative_and_absolute_names_inside_are_read(folder: Path) -> None:
    assert read(folder, "plain") == b"plain"
    assert read(folder, "deep/er/file") == b"deep"
    assert read(folder, "./deep//er/file") == b"deep"
    assert read(folder, str(folder / "deep" / "er" / "file")) == b"deep"


def test_the_folder_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert read(link, "plain") == b"plain"
    assert read(link, str(folder / "plain")) == b"plain"
    assert read(link, str(link / "plain")) == b"plain"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "not the name of a file"),
        ("  ", "not the name of a file"),
        ("pla\0in", "not the name of a file"),
        ("..", "contains '..'"),
        ("../secret", "contains '..'"),
        ("deep/../../secret", "contains '..'"),
        ("deep/../plain", "contains '..'"),
        ("/etc/hostname", "outside the jobs folder"),
        (".", "the jobs folder itself"),
        ("out", "symbolic link 'out'"),
        ("inside", "symbolic link 'inside'"),
        ("away/secret", "symbolic link 'away'"),
        ("absent", "no file 'absent'"),
        ("deep/absent/file", "no file"),
        ("plain/file", "cannot be read: Not a directory"),
        ("deep", "not a plain file"),
        ("pipe", "not a plain file"),
        ("x" * 300, "File name too long"),
    ],
)
def test_everything_else_is_refused_in_one_line(folder: Path, name: str, reason: str) -> None:
    before = open_descriptors()
    with pytest.raises(JobFileError, match=reason) as refused:
        read(folder, name)
    assert "\n" not in str(refused.value)
    assert open_descriptors() == before, "a descriptor is left open"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match=r"jobs folder .*none cannot be used: No such file"):
        read(tmp_path / "none", "plain")


def test_a_file_replaced_by_a_link_after_the_look_is_still_refused(folder: Path) -> None:
    """No time passes between look and use: the walk is the use."""
    target = folder / "deep" / "er"
    target.rename(folder / "moved")
    target.symlink_to(folder.parent)
    with pytest.raises(JobFileError, match="symbolic link 'er'"):
        read(folder, "deep/er/secret")


def test_a_run_that_was_believed_dead_cannot_put_its_file_in_place(folder: Path) -> None:
    with JobFile(folder, "plain") as frozen, JobFile(folder, "plain") as later:
        old, old_descriptor = frozen.create_partial("plain.gz")
        new, new_descriptor = later.create_partial("plain.gz")
        later.remove_partials("plain.gz", but=new)
        os.write(new_descriptor, b"new")
        os.write(old_descriptor, b"old")
        with pytest.raises(JobFileError, match="taken over"):
            frozen.put_in_place(old, "plain.gz")
        later.put_in_place(new, "plain.gz")
        os.close(old_descriptor)
        os.close(new_descriptor)
    assert (folder / "plain.gz").read_bytes() == b"new"


def test_partial_files_of_other_targets_stay(folder: Path) -> None:
    others = {".plain.xz.01234567.partial", ".plain.gz.0123456x.partial", ".plain.gz.other.01234567.partial"}
    for name in others:
        (folder / name).touch()
    with JobFile(folder, "plain") as file:
        mine, descriptor = file.create_partial("plain.gz")
        os.close(descriptor)
        file.create_partial("plain.gz")
        file.remove_partials("plain.gz", but=mine)
        assert {path.name for path in folder.glob(".plain*")} == {*others, mine}
        assert file.open_partial("../plain.gz.01234567.partial", "plain.gz") is None
        assert file.open_partial(".plain.gz.01234567.partial", "plain.gz") is None
