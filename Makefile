# Two commands for a newcomer: make demo, make test. Everything else is for contributors.
PYTHON ?= python3
BIN := .venv/bin
# Real data sets, for the tests and benchmarks that can use them; without it they are skipped.
export ELMAN_DATA ?= $(abspath $(firstword $(wildcard data ../shared/data)))
# Without bytecode each process that a test starts would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test fast check lint bench docs lock browser clean

# Reports are tested in a real browser: that of the system, or the one named in ELMAN_BROWSER.
FIND_BROWSER := { command -v $${ELMAN_BROWSER:-chromium} || command -v chromium-browser || command -v google-chrome; }

demo: .venv/.core
	rm -rf runs/demo
	$(BIN)/elman compare --demo --run runs/demo

test: .venv/.dev
	@$(FIND_BROWSER) > /dev/null || echo "no chromium: the reports are not looked at in a browser (make browser installs one)"
	OMP_NUM_THREADS=1 HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest -n 2 --dist loadgroup -q

fast: .venv/.dev
	OMP_NUM_THREADS=1 HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -n 2 --dist loadgroup -q -m "not slow"

check: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/test_architecture.py

lint: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q -x tests/laws tests/ops
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

docs: .venv/.dev
	$(BIN)/python docs/build.py
	$(BIN)/python docs/build_site.py

# Renew constraints.txt: the newest versions that are resolved today, but for those it holds back.
lock:
	$(PYTHON) .ci/lock.py

browser:
	@$(FIND_BROWSER) || apt-get install -y chromium || sudo apt-get install -y chromium

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/.core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	touch $@

.venv/.dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	# kenlm is compiled on one core while all else is unpacked on another; Python compiles only what it imports of that
	{ $(BIN)/python -m pip install -q -c constraints.txt kenlm || echo "kenlm was not built: its tests will be skipped"; } & \
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt -e '.[dev]'; code=$$?; wait; exit $$code
	touch $@ .venv/.core
