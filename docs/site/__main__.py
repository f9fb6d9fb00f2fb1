"""``python -m docs.site [html|versions|linkcheck]``: the site of this version in ``out/site/VERSION``, and a page of all versions there.

``versions`` builds those of the tags ``v*`` that are not there yet, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from samba_onnx.version import __version__

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "site"

_VERSIONS = """\
<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>samba-onnx: documentation</title>
<body style="font-family: sans-serif; max-width: 40em; margin: 2em auto">
<h1>samba-onnx</h1>
<ul>
{}
</ul>
"""


def build(builder: str = "html") -> int:
    """Run Sphinx; a warning is an error.

    Args:
        builder: What it writes: ``html``, or ``linkcheck``, which asks the servers of all links.
    """
    place = OUT / __version__ if builder == "html" else OUT.parent / f"site-{builder}"
    command = [sys.executable, "-m", "sphinx", "-b", builder, "-c", str(Path(__file__).parent)]
    command += ["-d", str(OUT.parent / "site-doctrees"), "-W", "--keep-going", "-q"]
    status = subprocess.run([*command, str(ROOT), str(place)], cwd=ROOT, check=False).returncode
    if status == 0 and builder == "html":
        write_versions(OUT)
    return status


def build_tags(checkout: Path = ROOT, place: Path = OUT) -> int:
    """Build the site of every tagged version that a folder does not have, each by the tag's own pages and code.

    Args:
        checkout: A clone with its tags, which start with ``v``.
        place: The folder that gets a site for each version.
    """
    listed = subprocess.run(
        ["git", "tag", "--list", "v*"], cwd=checkout, capture_output=True, text=True, check=True
    )
    for tag in listed.stdout.split():
        site = place / tag.removeprefix("v")
        if (site / "docs" / "index.html").exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "checkout.tar"
            subprocess.run(["git", "archive", "-o", archive, tag], cwd=checkout, check=True)
            shutil.unpack_archive(archive, folder, filter="data")
            # The tag's package comes before the one that is installed: its reference is its own.
            variables = {**os.environ, "PYTHONPATH": folder}
            command = [sys.executable, "-m", "docs.site"]
            status = subprocess.run(command, cwd=folder, env=variables, check=False).returncode
            if status:
                return status
            place.mkdir(parents=True, exist_ok=True)
            shutil.move(Path(folder) / "out" / "site" / site.name, site)
    return 0


def write_versions(place: Path) -> None:
    """Write the page that leads to the site of every version in a folder, the newest first.

    Args:
        place: The folder; each site in it is called as its version is.
    """
    found = [path.parents[1].name for path in place.glob("*/docs/index.html")]
    newest = sorted(
        found, key=lambda name: [int(part) if part.isdigit() else -1 for part in name.split(".")]
    )
    rows = "\n".join(
        f'<li><a href="{name}/docs/index.html">{name}</a>' for name in reversed(newest)
    )
    (place / "index.html").write_text(_VERSIONS.format(rows), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["versions"]:
        sys.exit(build_tags() or build())
    sys.exit(build(*sys.argv[1:]))
