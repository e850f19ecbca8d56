# `make` alone lists the targets. Everything runs in .venv, which `make setup` creates from requirements.lock.
#   PYTHON=/path/to/python3.12   the Python that .venv is made with (default: the first of 3.11 to 3.14 found)
#   ARGS="--no-browser --port 8899"   passed on by `lab`, `test`, `bench`, `grade`

VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
STAMP := $(VENV)/.installed
ARGS ?=
# Of the tests that take turns: those of the commit, or those of a number (tests/sampling.py).
TURN ?= commit
# What is written by hand; both tools are wheels that need no node.
JAVASCRIPT := labkit/widgets/js labkit/board/page.js labkit/board/guesses.js labkit/board/poll.js labkit/board/dots.js labkit/board/instructor.js labkit/board/page.css labkit/lessons/slides.js labkit/lessons/slide_prose.js labkit/lessons/slides.css labkit/lessons/slide_figures.css labkit/lessons/played.js tests/widgets/in_page labkit/lessons/slide_bars.js labkit/lessons/slide_ranks.js labkit/lessons/slide_timeline.js labkit/lessons/slide_story.js
# Three at a time on two cores: tests wait for processes of their own, and each worker pays for collecting all
# (half a minute of CPU), a kernel, two preloaded processes and a browser; a file's tests stay together,
# in the order of tests/conftest.py: the files that take longest first.
WORKERS := -n 3 --dist loadfile --no-loadscope-reorder --durations=15
# Of exercises: hidden cases and wrong answers, for instructors alone (labkit/checks/kept_back.py).
KEPT_BACK := ':(exclude,glob)labkit/exercises/**/hidden*.py' ':(exclude,glob)labkit/exercises/**/wrong.py'
NOTEBOOKS := --nbval --nbval-cell-timeout=180
PYTHONS := $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11 python3.14 python)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of processes import labkit in one run of the tests; where this is set, each of them would compile it anew.
unexport PYTHONDONTWRITEBYTECODE

# An environment that was moved, or whose Python is gone, is made anew: its scripts hold absolute paths.
ifneq ($(shell test "$$(cat $(STAMP) 2>/dev/null)" = "$$(pwd -P)" && $(BIN)/python -c 'print("runs")' 2>/dev/null),runs)
STALE := stale
endif

# matplotlib's list of fonts, beside the matplotlib that it lists: one of $HOME may name those of an environment
# that is gone, and matplotlib then says so in the outputs of a lesson.
unit notebooks test-all test-elsewhere build: export MPLCONFIGDIR := $(CURDIR)/$(VENV)/matplotlib

.PHONY: help setup lab lint type check unit notebooks test test-all test-gpu test-elsewhere test-browser looks build slides docs dist grade bench lock clean stale
.DELETE_ON_ERROR:

help:  ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP)  ## Create .venv from requirements.lock (needs Python 3.11 to 3.14)

$(STAMP): requirements.lock pyproject.toml $(STALE)
	@if $(BIN)/python -c 'import pip' 2>/dev/null; then exit 0; fi; \
	seen=""; chosen=""; \
	for python in $(PYTHONS); do \
	    version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
	    seen="$$seen $$python ($$version)"; \
	    if "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))'; then chosen=$$python; break; fi; \
	done; \
	if [ -z "$$chosen" ]; then \
	    echo "labkit needs Python 3.11 to 3.14 (PyTorch has no build for others yet); found:$${seen:- none}." >&2; \
	    echo "Install one (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python; or python.org)," >&2; \
	    echo "or name one: make setup PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	if ! "$$chosen" -c 'import venv, ensurepip' 2>/dev/null; then \
	    echo "$$chosen has no venv module. Debian, Ubuntu: apt install python$$version-venv; or name another Python:" >&2; \
	    echo "make setup PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	echo "Creating $(VENV) with $$chosen ($$version)"; \
	"$$chosen" -m venv --clear $(VENV)
	@echo "Installing what requirements.lock names; the first call installs about 2 GB and takes minutes"
	@quiet=--quiet; test -f $(STAMP) || quiet=; \
	{ $(BIN)/python -m pip install $$quiet -r requirements.lock && \
	   $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable . ; } || { \
	    echo "The installation stopped; pip's lines above say why. 'make setup' goes on from there." >&2; exit 1; }
	@pwd -P > $(STAMP)

stale:

lab: setup  ## Self-check in words, then JupyterLab on notebooks/ (ARGS are JupyterLab's own)
	@exec $(BIN)/labkit lab -- $(ARGS)

lint: setup  ## ruff check, ruff format --check, oxlint, oxfmt --check, codespell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/oxlint --quiet $(JAVASCRIPT)
	$(BIN)/oxfmt --check $(JAVASCRIPT)
	$(BIN)/codespell

type: setup  ## mypy --strict on labkit
	$(BIN)/mypy

check: setup  ## Prove that notebooks and slides are what their sources say
	$(BIN)/labkit build --check

# One thread a process: workers and their ranks share the cores, and threads that spin take them from each other.
unit notebooks test-all test-elsewhere: export OMP_NUM_THREADS := 1

unit: setup  ## pytest and the solutions' cells: what is neither long nor in need of a GPU, and whose turn it is; prints the slowest
	$(BIN)/python -m pytest $(WORKERS) $(NOTEBOOKS) -m "not long and not gpu1 and not gpu2" --turn=$(TURN) $(ARGS)

notebooks: setup  ## Execute solutions/*.ipynb whole and compare each output with the stored one
	$(BIN)/python -m pytest $(WORKERS) $(NOTEBOOKS) solutions

# Two parts at a time: mypy works on one core, and tests begin on the other.
test: setup  ## All that needs no GPU and no minutes: lint, type, check, unit (goes on after a failure, then fails)
	@$(MAKE) --no-print-directory --keep-going -j 2 lint type check unit || \
	    { echo "make test: a part failed; the lines of make that begin with *** say which."; exit 1; }

test-all: setup  ## `make test` with all tests and cells, whosever turn it is, and those that take minutes
	@$(MAKE) --no-print-directory --keep-going lint type check
	$(BIN)/python -m pytest $(WORKERS) $(NOTEBOOKS) -m "not gpu1 and not gpu2" $(ARGS)

test-gpu: setup  ## Only the tests that need one or two CUDA GPUs; fails where there is none that works
	$(BIN)/python -m labkit.launch.gpus
	$(BIN)/python -m pytest -m "gpu1 or gpu2" $(ARGS)

test-elsewhere: setup  ## What macOS and Windows run, here with fork, memfd, bubblewrap and control groups taken away
	@$(BIN)/python -m tests.elsewhere $(ARGS)

test-browser: setup  ## Only the tests that drive a real Chromium
	$(BIN)/python -m pytest -m browser $(ARGS)

looks: setup  ## Every view at 400, 700 and 1440 pixels, light and dark, on one page: build/looks/index.html (ARGS="ring bucket")
	@$(BIN)/python -m tests.browser.gallery build/looks $(ARGS) && echo "build/looks/index.html"

build: setup  ## Write notebooks/, solutions/*.ipynb and slides/ from solutions/*.py; the views' programs, where node is
	$(BIN)/labkit build $(ARGS)

slides: setup  ## Build the decks of all lessons and of the workshop: build/slides/*.html and *.pdf (ARGS="02 --pdf")
	@$(BIN)/labkit slides $(or $(ARGS),--pdf)

docs: setup  ## Build the documentation site: build/docs/index.html, which needs no network (a warning fails it)
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs && echo "build/docs/index.html"

dist: setup  ## Write dist/*.whl from the last commit, labkit with its lessons, and dist/hosted/ for Kaggle and Colab
	@rm -rf build/dist dist && mkdir -p build/dist dist
	@git archive HEAD labkit pyproject.toml README.md LICENSE $(KEPT_BACK) | tar -x -C build/dist
	@git archive --prefix=labkit/course/ HEAD notebooks .jupyter ':(glob)solutions/[0-9]*.py' | tar -x -C build/dist
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist build/dist && ls dist/*.whl
	@$(BIN)/python -m labkit.lessons.hosted dist

grade: setup  ## Grade submissions: make grade ARGS="FOLDER --lesson 02 --out grades"
	$(BIN)/labkit grade $(ARGS)

bench: setup .venv-bench/.installed  ## Launch, ring and recording beside their peers; prints tables, writes bench/*.json
	$(BENCH)/bin/python -m tests.benchmarks $(ARGS)

# The peers live on top of .venv, so that what labkit is tested with stays as requirements.lock says.
.venv-bench/.installed: requirements.lock pyproject.toml
	@$(BIN)/python -m venv --clear $(BENCH)
	@$(BIN)/python -c "import sysconfig; print(f'import site; site.addsitedir({sysconfig.get_path(\"purelib\")!r})')" \
	    > "$$($(BENCH)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/environment.pth"
	@peers=$$($(BIN)/python -c 'import tomllib; \
	    print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["bench"])'); \
	for peer in $$peers; do \
	    $(BENCH)/bin/python -m pip install --quiet --constraint requirements.lock "$$peer" || \
	        echo "$$peer cannot be had here; the benchmark says what it leaves out."; \
	done
	@touch $@

lock: setup  ## Resolve the newest versions pyproject.toml allows and write requirements.lock from them
	rm -rf build/lock && mkdir -p build && $(BIN)/python -m venv build/lock
	build/lock/bin/python -m pip install --quiet --upgrade setuptools '.[dev,docs]'
	{ sed -n '/^#/p' requirements.lock; \
	  build/lock/bin/python -m pip freeze --all --exclude labkit-torch --exclude pip | sed -e '/^#/d' -e 's/+[a-z0-9.]*$$//'; } \
	  > build/requirements.lock
	mv build/requirements.lock requirements.lock && rm -rf build/lock

clean:  ## Remove caches and build products (.venv and grades stay)
	rm -rf build dist bench $(BENCH) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
