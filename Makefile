# Each target is enough by itself: it sets up .venv first, which takes about a second once that is done.
# Another Python than python3:  make setup PYTHON=python3.12

PYTHON ?=
SYSTEM_PYTHON := $(or $(PYTHON),python3)
RUN := .venv/bin/python
ARGS ?=
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup lab update test test-browser test-mutants conformance demo bench benchmark standalone test-setup lint clean distclean

help:
	@echo 'make lab         set up and open JupyterLab on the lessons'
	@echo 'make update      get the newest lessons; what you have changed is kept'
	@echo 'make test        set up and run every lesson and test'
	@echo 'make demo        naive and tiled kernel, checked and timed, in this terminal'
	@echo 'make benchmark   times of the kernels and cuBLAS over sizes, checked'
	@echo 'make bench       how well the project itself does on this machine'
	@echo 'make standalone  build/matmul_shared, the whole program without Python'
	@echo 'make setup       only the environment, .venv'
	@echo 'make test-browser lessons in JupyterLab, in Chromium (2 minutes)'
	@echo 'make lint        ruff over the code and the lessons'
	@echo 'make test-setup  prove the set-up in a fresh folder (minutes)'
	@echo 'make test-mutants  check() on every wrong and right kernel of tests/mutants (minutes)'
	@echo "make conformance PyCUDA's own test suite on the CPU driver (minutes)"
	@echo 'make clean       remove what was built; make distclean: .venv too'
	@echo 'ARGS="..." is passed on to lab, test, test-browser, conformance, demo, bench and benchmark.'

# helpers.bootstrap itself says what else is missing, but needs a Python to run at all.
setup:
	@'$(SYSTEM_PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 7))' 2>/dev/null || { \
	  echo '$(SYSTEM_PYTHON) is missing or too old: Python 3.11, 3.12 or 3.13 is needed.' >&2; \
	  sudo='sudo '; [ "$$(id -u)" != 0 ] || sudo=; \
	  if command -v apt-get >/dev/null; then \
	    line="$${sudo}apt-get update && $${sudo}apt-get install -y python3 python3-venv python3-dev g++"; \
	  elif command -v dnf >/dev/null; then \
	    line="$${sudo}dnf install -y python3 python3-devel gcc-c++"; \
	  else line='python3 with its headers and venv module, and g++, by your package manager'; fi; \
	  echo 'Paste this line, then run make again:' >&2; echo "  $$line" >&2; exit 1; }
	@'$(SYSTEM_PYTHON)' -m helpers.bootstrap

# On this machine only (loopback), with JupyterLab's own token.
lab: setup
	@allow=; [ "$$(id -u)" != 0 ] || allow=--allow-root; \
	exec $(RUN) -m jupyterlab --ServerApp.ip=127.0.0.1 --ServerApp.root_dir=. \
	  --LabApp.extra_labextensions_path=helpers/labextensions \
	  --LabApp.default_url=/lab/tree/notebooks $$allow $(ARGS)

# What was changed here and is new there is copied to mine/ first.
update:
	@'$(SYSTEM_PYTHON)' -m helpers.update

test: setup
	$(RUN) -m pytest --nbval notebooks tests --ignore=tests/setup --ignore=tests/browser \
	  --ignore=notebooks/work $(ARGS)

# The lessons in JupyterLab, in a real browser. Needs Chromium.
test-browser: setup
	@$(RUN) -m pip install --quiet --disable-pip-version-check -r tests/browser/requirements.txt
	$(RUN) -m pytest tests/browser $(ARGS)

# Every wrong kernel must get its diagnosis, every right one pass. make test runs a sample.
test-mutants: setup
	$(RUN) -m pytest tests/mutants tests/test_pipeline.py -m mutants $(ARGS)

# PyCUDA's own test suite, on the CPU driver.
conformance: setup
	@$(RUN) tests/conformance/run.py $(ARGS)

test-setup: setup
	$(RUN) -m pytest tests/setup $(ARGS)

demo: setup
	@$(RUN) -m helpers.demo $(ARGS)

bench: setup
	@$(RUN) -m helpers.bench $(ARGS)

benchmark: setup
	@$(RUN) -m helpers.benchmark $(ARGS)

standalone: setup
	@mkdir -p build
	$(RUN) -m helpers.toolkit nvcc -O2 -arch=sm_80 cuda/standalone/matmul_shared.cu -o build/matmul_shared

lint: setup
	$(RUN) -m ruff check .

clean:
	rm -rf build .pytest_cache .ruff_cache .cache/simt .cache/cpu_driver *.egg-info
	find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .cache
