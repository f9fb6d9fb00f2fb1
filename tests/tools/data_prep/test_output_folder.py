"""What of a folder is a dataset's own, and what is left of processes that were killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from samba_onnx.errors import UsageError
from samba_onnx.tools.data_prep.output_folder import OutputFolder


@pytest.fixture
def folder(tmp_path: Path) -> OutputFolder:
    folder = OutputFolder(tmp_path / "out")
    folder.path.mkdir()
    return folder


def test_what_was_written_when_a_process_was_killed_goes(
    folder: OutputFolder, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "text").write_text("mine")
    killed = folder.path / ".tokenizer.0.tmp"
    (killed / "inner").mkdir(parents=True)
    (killed / ".vocabulary.tmp").write_text("")
    (folder.path / "splits").mkdir()
    for name in (".a.hdf5.1.tmp", "splits/.b.tmp", "a.tmp", ".hidden", "splits/c.jsonl"):
        (folder.path / name).write_text("")
    (folder.path / ".link.tmp").symlink_to(outside)
    folder.remove_temporary()
    left = {path.relative_to(folder.path).as_posix() for path in folder.path.rglob("*")}
    assert left == {"a.tmp", ".hidden", "splits", "splits/c.jsonl"}
    assert (outside / "text").read_text() == "mine"


OWN = ("metadata.yaml", "logs.log", "train_1_of_3.hdf5", "dev_12_of_12.hdf5", ".a.hdf5.0.tmp")
OWN_FOLDERS = ("splits", "test_files", "tokenizer", "sha256", "json_error_log", ".tokenizer.0.tmp")


def test_a_dataset_is_cleared(folder: OutputFolder) -> None:
    for name in OWN:
        (folder.path / name).write_text("")
    for name in OWN_FOLDERS:
        (folder.path / name / "inner").mkdir(parents=True)
    assert not folder.is_empty()
    folder.clear([])
    assert folder.is_empty()


@pytest.mark.parametrize(
    "name", ["notes.txt", "notes.tmp", ".notes", "atmp", ".a.TMP", "a.b.tmp", "train_1_of_3.hdf5.bak", "test_1_of_1.hdf5"]
)  # fmt: skip
@pytest.mark.parametrize("is_folder", [False, True])
def test_what_no_run_leaves_stays_with_all_that_is_beside_it(
    name: str, is_folder: bool, folder: OutputFolder
) -> None:
    (folder.path / "metadata.yaml").write_text("")
    if is_folder:
        (folder.path / name).mkdir()
    else:
        (folder.path / name).write_text("")
    with pytest.raises(UsageError, match=f"files that are not of a dataset, as {name}"):
        folder.clear([])
    assert (folder.path / "metadata.yaml").exists()


@pytest.mark.parametrize("name", [name for name in (*OWN, *OWN_FOLDERS) if name[0] != "."])
def test_a_name_is_that_of_a_file_or_of_a_folder(name: str, folder: OutputFolder) -> None:
    if name in OWN:
        (folder.path / name).mkdir()
    else:
        (folder.path / name).write_text("")
    with pytest.raises(UsageError, match="not of a dataset"):
        folder.clear([])
