"""``samba-port install-sambaflow``: plain ``python program.py``, in virtual environments of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from samba_onnx.sambaflow.environments import NAME
from samba_onnx.sambaflow.launching import __file__ as LAUNCHING  # noqa: N812  a constant here

CHECKOUT = Path(LAUNCHING).parents[2]
PROGRAM = "import sambaflow; print(sambaflow.__spec__.name, sambaflow.__version__)\n"
OURS = "samba_onnx.sambaflow 1.19.0\n"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment that has what the environment of the tests has, and this checkout."""
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    packages = sysconfig.get_path("purelib")
    text = f"{CHECKOUT}\nimport site; site.addsitedir({packages!r})\n"
    (site_packages(folder) / "a_tests.pth").write_text(text)
    (tmp_path / "program.py").write_text(PROGRAM)
    return folder


def site_packages(environment: Path) -> Path:
    (folder,) = environment.glob("lib/python*/site-packages")
    return folder


def run(environment: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(environment / "bin" / "python"), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=environment.parent,
        env=variables,
    )


def install(environment: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(environment, "-m", "samba_onnx", "install-sambaflow", *words)


def test_plain_python_finds_it_until_it_is_removed(environment: Path) -> None:
    file = site_packages(environment).resolve() / NAME
    assert run(environment, "program.py").returncode == 1
    first = install(environment)
    assert (first.returncode, first.stderr) == (0, "")
    expected = f"plain python finds samba-onnx as sambaflow: wrote {file}\n"
    assert first.stdout == expected
    assert run(environment, "program.py").stdout == OURS
    again = install(environment)
    assert again.stdout == expected.replace("wrote", "there already is")
    removed = install(environment, "--remove", "--json", "-")
    document = json.loads(removed.stdout)
    assert (document["changed"], document["sambaflow"], document["real"]) == (True, "none", None)
    assert not file.exists()
    assert "No module named 'sambaflow'" in run(environment, "program.py").stderr
    assert "there is no" in install(environment, "--remove").stdout


def test_an_interpreter_that_does_not_import_it_loads_nothing_of_it(environment: Path) -> None:
    install(environment)
    code = "import sys; print([name for name in sys.modules if name.startswith('samba')])"
    assert run(environment, "-c", code).stdout == "[]\n"


def test_it_gives_way_to_a_real_installation(environment: Path) -> None:
    real = site_packages(environment) / "sambaflow"
    real.mkdir()
    (real / "__init__.py").write_text("__version__ = 'real'\n")
    refused = install(environment)
    assert refused.returncode == 1
    assert refused.stdout.startswith("SambaFlow itself is installed, ")
    assert not (site_packages(environment) / NAME).exists()
    shutil.rmtree(real)
    assert install(environment).returncode == 0
    real.mkdir()
    (real / "__init__.py").write_text("__version__ = 'real'\n")
    assert run(environment, "program.py").stdout == "sambaflow real\n"
    assert install(environment, "--remove").returncode == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_an_environment_that_cannot_be_written_is_one_line(environment: Path) -> None:
    folder = site_packages(environment)
    folder.chmod(0o555)
    done = install(environment)
    folder.chmod(0o755)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun")
def test_processes_of_mpirun_find_it_and_each_other(environment: Path) -> None:
    install(environment)
    (environment.parent / "program.py").write_text(
        "import sambaflow.samba as samba\n"
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group(backend='mpi')\n"
        "total = torch.tensor([dist.get_rank() + 1.0])\n"
        "dist.all_reduce(total)\n"
        "print(f'rank {dist.get_rank()} of {dist.get_world_size()}: {total.item()}', flush=True)\n"
    )
    launcher = [shutil.which("mpirun") or "", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*launcher, str(environment / "bin" / "python"), "program.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=environment.parent,
        env=variables,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["rank 0 of 2: 3.0", "rank 1 of 2: 3.0"]
