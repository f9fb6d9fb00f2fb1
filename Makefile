# Every target makes what it needs: a virtual environment per purpose, from pyproject.toml and constraints.txt.
PYTHON ?= python3
# Exact versions: on Linux a range would fetch torch with several gigabytes of CUDA.
INSTALL = PIP_CONSTRAINT=constraints.txt .venv/bin/pip install --quiet --disable-pip-version-check
MODEL ?= resnet50
OUT ?= out

.PHONY: help demo test test-all test-slow test-ray wild lint types bench site site-versions linkcheck release clean
help:  ## Show the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/:/' | column -t -s:

.venv/bin/samba-port: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) torch
	$(INSTALL) -e '.[dev]'
	@touch $@

.venv/bench: .venv/bin/samba-port
	$(INSTALL) -e '.[bench]'
	@touch $@

# Apart from the other: Ray brings 200 MB that nothing else needs, and needs no torch.
.venv-ray: pyproject.toml constraints.txt
	$(PYTHON) -m venv $@
	PIP_CONSTRAINT=constraints.txt $@/bin/pip install --quiet --disable-pip-version-check -e '.[ray,test]'
	@touch $@

# Apart as well: what writes the site is nobody's business who runs the tests.
.venv-site: pyproject.toml constraints.txt
	$(PYTHON) -m venv $@
	PIP_CONSTRAINT=constraints.txt $@/bin/pip install --quiet --disable-pip-version-check torch
	PIP_CONSTRAINT=constraints.txt $@/bin/pip install --quiet --disable-pip-version-check -e '.[site]'
	@touch $@

# One process exports them all: each on its own would import torch and transformers again.
.cache/models/tiny: .venv/bin/samba-port $(wildcard models/*.py)
	.venv/bin/python -m models --cache --variant tiny
	@touch $@

demo: .venv/bin/samba-port  ## Build a real model, convert it, report, run it on the emulator, compare.
	@mkdir -p $(OUT)
	.venv/bin/python -m models $(MODEL) $(OUT)/$(MODEL).onnx
	.venv/bin/samba-port convert $(OUT)/$(MODEL).onnx -o $(OUT)/$(MODEL).pef
	.venv/bin/samba-port run $(OUT)/$(MODEL).pef --random 0 --ledger $(OUT)/ledger.json
	.venv/bin/samba-port verify $(OUT)/$(MODEL).onnx $(OUT)/$(MODEL).pef
	@printf '\nTry next, with a model of your own or that of samba-port example:\n'
	@printf '  .venv/bin/samba-port convert MODEL.onnx --dim batch=8\n'
	@printf '  .venv/bin/samba-port analyze MODEL.onnx --target sn30\n'
	@printf '  .venv/bin/samba-port exec TRAIN.py\n'

test: .cache/models/tiny  ## The fast tests.
	.venv/bin/pytest -n 2 -m "not slow"

test-all: .cache/models/tiny  ## The slow tests too, with all rows of the large tables.
	.venv/bin/pytest -n 2

test-slow: .cache/models/tiny  ## The slow tests, with a sample of the large tables.
	.venv/bin/pytest -n 2 -m "slow and not exhaustive"

test-ray: .venv-ray  ## Data preparation and surveys on a real Ray cluster of this machine.
	.venv-ray/bin/python -c 'import ray.data'
	.venv-ray/bin/pytest tests/tools/data_prep/test_ray.py tests/tools/survey/test_cluster_analyses.py

# The wheels stay: what they hold is pinned.
wild: .venv/bin/samba-port  ## Fetch what other people published, convert and verify it, write the table.
	.venv/bin/python -m tests.wild.distributions
	.venv/bin/python -m tests.wild published

lint: .venv/bin/samba-port  ## Style.
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: .venv/bin/samba-port  ## Types and import contracts.
	.venv/bin/mypy
	.venv/bin/mypy examples
	.venv/bin/mypy benchmarks
	.venv/bin/mypy models
	.venv/bin/lint-imports

bench: .venv/bench  ## Ratios against named baselines, measured in one run.
	.venv/bin/python -m benchmarks

site: .venv-site  ## The documentation as a site that opens from its folder, out/site.
	.venv-site/bin/python -m docs.site

site-versions: .venv-site  ## The same with the site of every tagged version.
	.venv-site/bin/python -m docs.site versions

linkcheck: .venv-site  ## Ask the servers of all links of the documentation.
	.venv-site/bin/python -m docs.site linkcheck

release:  ## Wheel, sdist, SBOM and checksums in dist/, tried in empty environments.
	.ci/release

clean:  ## Remove what the targets made.
	rm -rf .venv .venv-ray .venv-site .venv-release .tox .cache $(OUT) build dist *.egg-info
