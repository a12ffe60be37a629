# Every target sets up .venv first, and again whenever pyproject.toml or the lock changes; the demo needs little.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The versions of the lock, each file by its digest; what the lock does not name is not installed. What has no wheel is
# built with the setuptools of the lock.
LOCKED := install --no-compile --require-hashes --no-deps --no-build-isolation
# torch by its version alone, as builds for other hardware have other digests. TORCH=requirements/torch.txt asks for the
# digests of the package index.
TORCH ?=
# Python compiles what is imported, once; pip would compile every file of torch, for a minute.
export PYTHONDONTWRITEBYTECODE :=
# mkdocs-material prints a notice about its own future on every build; it is not about these pages.
export NO_MKDOCS_2_WARNING := true

.DEFAULT_GOAL := help
.PHONY: help demo demo-features studio test test-portable lint bench results pictures docs lock check-lock dist sbom licences clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s%s\n", $$1, $$2}' Makefile

demo: .venv/.core ## ten digit modules from data to one classifier, in demo/report.html
	$(BIN)/intarsia demo

demo-features: .venv/.backbones ## a hundred modules on a pretrained network's features, in demo-features/report.html
	$(BIN)/intarsia demo --features

studio: .venv/.studio ## the demo's modules in the browser, to switch on and off; Ctrl-C ends it
	test -e demo/modules/bank.json || $(BIN)/intarsia demo
	$(BIN)/intarsia studio demo

test: .venv/.installed ## lint, docs and the test suite
	$(MAKE) --no-print-directory -j 2 lint docs
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-portable: .venv/.installed ## the suite as other machines run it, see VARIANTS and ARGUMENTS in CONTRIBUTING.md
	PYTHON=$(BIN)/python .ci/portable $(VARIANTS) $(if $(ARGUMENTS),-- $(ARGUMENTS))

lint: .venv/.installed ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.installed ## time training against its baselines
	$(BIN)/python benchmarks/speed/training.py

results: .venv/.installed ## write the pages of docs/results from their numbers
	$(BIN)/python docs/build/results.py

pictures: .venv/.installed ## what the docs show: figures, what examples print, reports, pages in a browser
	$(BIN)/python docs/build/ideas.py
	$(BIN)/python docs/build/examples.py docs/tutorial.md docs/howto/*.md docs/guide/*.md
	$(BIN)/python docs/build/pictures.py

docs: .venv/.installed ## build the site into site/, warnings are errors
	$(BIN)/mkdocs build --strict --clean

lock: .venv/.installed ## resolve requirements/*.txt anew; UPGRADE=1 takes the newest versions
	$(BIN)/python requirements/lock.py $(if $(UPGRADE),--upgrade)

check-lock: .venv/.installed ## fail where the lock does not answer to pyproject.toml (asks the package index)
	$(BIN)/python requirements/lock.py --check

dist: .venv/.installed ## wheel and sdist, each installed into an empty environment, where the demo runs
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	PYTHON=$(BIN)/python TORCH=$(TORCH) .ci/try-dist dist/*.whl dist/*.tar.gz

sbom: ## what the lock holds, as CycloneDX, in dist/intarsia.cdx.json
	$(PYTHON) requirements/sbom.py dist/intarsia.cdx.json

licences: .venv/.installed ## write docs/licences.md from the metadata of what is installed
	$(BIN)/python docs/build/licences.py

clean: ## remove what the other targets made
	rm -rf .venv site demo dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.venv/.core: pyproject.toml requirements/core.txt requirements/torch.txt
	$(PYTHON) -m venv .venv
	$(PIP) $(LOCKED) -r requirements/core.txt $(addprefix -r ,$(TORCH))
	$(PIP) install --no-compile --no-build-isolation -e '.[pinned]'
	touch $@

.venv/.installed: .venv/.core requirements/backbones.txt requirements/studio.txt requirements/dev.txt
	$(PIP) $(LOCKED) -r requirements/dev.txt
	$(PIP) check
	touch $@

.venv/.backbones: .venv/.core requirements/backbones.txt
	$(PIP) $(LOCKED) -r requirements/backbones.txt
	touch $@

.venv/.studio: .venv/.core requirements/backbones.txt requirements/studio.txt
	$(PIP) $(LOCKED) -r requirements/studio.txt
	$(PIP) check
	touch $@
