"""``python -m models``."""

from pathlib import Path

import onnx
import pytest

from models import MODELS
from models.__main__ import main


def test_the_list_names_every_model_and_variant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(MODELS)
    assert "tiny, full, large" in next(line for line in lines if line.startswith("llama"))


def test_a_model_is_written_without_a_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lenet.onnx"
    assert main(["lenet", str(path), "--variant", "tiny", "--seed", "3", "--dynamic"]) == 0
    assert onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give NAME and OUT.onnx"),
        (["lenet"], "give NAME and OUT.onnx"),
        (["alexnet", "x.onnx"], "no model 'alexnet'; there are logistic_regression, mlp"),
        (["lenet", "x.onnx", "--variant", "large"], "lenet has no variant 'large'"),
        (["lenet", "x.onnx", "--variant", "huge"], "invalid choice: 'huge'"),
    ],
)
def test_bad_usage_is_one_clear_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_the_cache_is_filled_with_every_model_that_has_the_variant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "models.__main__.cached_onnx", lambda name, variant, *, here: f"{name} {variant} {here}"
    )
    assert main(["--cache", "--variant", "large"]) == 0
    assert capsys.readouterr().out == "llama large True\n"


def test_the_cache_of_tiny_models_has_what_the_tests_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "models.__main__.cached_onnx",
        lambda name, variant, *, here, **options: f"{name} {variant} {here} {options}",
    )
    assert main(["--cache", "--variant", "tiny"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(MODELS)] == [f"{name} tiny True {{}}" for name in MODELS]
    assert "bert tiny True {'raw': True}" in lines[len(MODELS) :]
    assert "lstm tiny True {'dynamic': True}" in lines[len(MODELS) :]
