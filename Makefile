# `make demo` and `make test` do all their set-up: each makes .venv and installs what it needs; a second call reuses it.
PYTHON ?= python3
BIN := .venv/bin
THREADS ?= 2
export OMP_NUM_THREADS ?= $(THREADS)
# Modules are compiled once: an image of Python may say otherwise, and the tests start many programs, 2 s each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test full lint house docs bench validity mutants soundness clean

# Modules are compiled on all cores, 75 s sooner than by pip; some packages have templates that are no Python.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("dpfl-audit needs Python 3.11 or newer") if sys.version_info < (3, 11) else 0'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev,docs]'
	$(BIN)/python -m compileall -q -j 0 -x '/tests?/' .venv/lib > /dev/null 2>&1 || true
	touch $@

demo: .venv/installed
	$(BIN)/audit demo -o audit-demo

# A test file stays with one worker, which makes its trainings once; each worker computes on one core. Plain asserts save
# every worker 17 s; `.venv/bin/pytest FILE` shows the values of one that failed.
WORKERS ?= --numprocesses auto --maxprocesses 4 --dist loadfile --assert=plain

test: .venv/installed
	$(BIN)/pytest tests -m "not full" $(WORKERS)

# Before an issue is called resolved and before a release: the wheel, Ray, a second device, every command on every page,
# kills at every place. `make test` has a short case of most.
full: .venv/installed
	$(BIN)/pytest tests -m full $(WORKERS)

lint: .venv/installed
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check .
	mkdir -p .link && ln -sfn .. .link/dpfl_audit
	MYPYPATH=.link $(BIN)/mypy -p dpfl_audit

# How large and how tangled the code is, with the ceilings that the tests hold it to; the page is for the record.
house: .venv/installed
	$(BIN)/python benchmarks/house.py --page benchmarks/measured/house.md

# The site, without network; a warning is an error. `make test` does the same, and runs every command on its pages.
docs: .venv/installed
	$(BIN)/python -m sphinx -W -q -b html docs build/docs
	@echo "$(CURDIR)/build/docs/index.html"

bench: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/inversion.py
	$(BIN)/python benchmarks/federation.py
	$(BIN)/python benchmarks/federation.py --model logistic
	$(BIN)/python benchmarks/membership.py
	$(BIN)/python benchmarks/choose.py speed

validity: .venv/installed
	$(BIN)/python benchmarks/validity.py

# Which of 200 wrong lines would the tests notice? Hours; killed work goes on, and survivors meet the tests again.
mutants: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[mutants]'
	$(BIN)/python benchmarks/mutants.py --jobs $(THREADS) -o mutants.jsonl > mutants.md
	@echo "$(CURDIR)/mutants.md"

# About half an hour on two cores; killed, it goes on where it was. `make clean` forgets what it has.
soundness: .venv/installed
	$(BIN)/python benchmarks/soundness.py --page benchmarks/measured/soundness.md

clean:
	rm -rf build dist .link *.egg-info audit-demo
