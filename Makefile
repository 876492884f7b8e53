# Everything runs from a private virtual environment that `make` creates when
# it is missing and renews when the pinned requirements change.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The newest interpreter of 3.11 to 3.13 that starts: a shim of pyenv exists also
# where its version is not chosen. Override with `make PYTHON=/path/to/python ...`.
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
  $$p -c '$(SUPPORTED)' >/dev/null 2>&1 && { command -v $$p; break; }; done)

# tensorflow-federated 0.87 and tensorflow-privacy 0.9 ask for Python 3.11 at most
# and run on 3.13. Modules are compiled on all cores afterwards: importing
# TensorFlow takes 17 s of uncompiled ones and 5 s of these, and an environment
# may forbid that an import writes them (PYTHONDONTWRITEBYTECODE).
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-deps \
  --no-compile --ignore-requires-python
COMPILE = $(BIN)/python -m compileall -qq -j 0 \
  -x '/(tests?|testing|pip)/|/ray/(rllib|tune|dashboard|train)/' $(VENV)/lib \
  tff_fedemb tasks binaries || :

export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: setup demo features smoke test slow-test lint bazel docs clean

# `make setup RAY=1` also installs Ray for --runtime=ray, LITE=1 what runs a
# client's .tflite file without TensorFlow, ONNX=1 what writes and checks ONNX
# files, GPU=1 TensorFlow with CUDA 12 (some 5 GB more, by estimate). Say it
# again when the environment was made anew.
EXTRAS := $(if $(filter 1,$(RAY)),ray) $(if $(filter 1,$(LITE)),lite) \
  $(if $(filter 1,$(ONNX)),onnx) $(if $(filter 1,$(GPU)),gpu)

setup: $(STAMP) $(EXTRAS:%=$(VENV)/.installed_%)

$(VENV)/.installed_%: requirements-%.txt $(STAMP)
	@echo "Installing $< into $(VENV) ..."
	@$(PIP_INSTALL) --requirement $<
	@$(COMPILE)
	@touch $@

$(STAMP): requirements.txt pyproject.toml setup.py
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(SUPPORTED)' 2>/dev/null || { \
	  echo "error: Python 3.11, 3.12 or 3.13 is needed and none was" \
	  "found$(if $(PYTHON), at $(PYTHON)); install one (Debian/Ubuntu:" \
	  "apt install python3-venv; anywhere: pyenv install 3.13" \
	  "or uv python install 3.13) or name it: make PYTHON=/path/to/python3.13" \
	  >&2; exit 1; }
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "error: $(PYTHON)" \
	  "cannot create a virtual environment; on Debian/Ubuntu:" \
	  "apt install python3-venv" >&2; exit 1; }
	@echo "Installing pinned requirements into $(VENV) (about 2.8 GB) ..."
	@$(PIP_INSTALL) --requirement requirements.txt
	@$(PIP_INSTALL) --no-build-isolation --editable .
	@for site in $(VENV)/lib/python3.*/site-packages; do \
	  cp tff_fedemb/first.pth $$site/tff_fedemb.pth; done
	@$(COMPILE)
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m binaries.run_federated \
	  --flagfile=binaries/flagfiles/demo.flags --run_dir=runs/demo

# Private classifiers on features of scikit-learn's digits, and a picture.
features: $(STAMP)
	@mkdir -p runs/features
	$(BIN)/python -m binaries.extract_features --digits --embedding=pixels \
	  --output=runs/features/train.npz --test_output=runs/features/test.npz \
	  --overwrite
	$(BIN)/python -m binaries.sweep_features --delta=1e-4 --overwrite --seeds=1,2,3,4,5 \
	  --methods=sgd,sgd:loss=sigmoid,least_squares,least_squares:covariance=per_class,newton,feature_covariance \
	  --train=runs/features/train.npz --test=runs/features/test.npz \
	  --output_json=runs/features/digits.json \
	  --output_png=runs/features/digits.png

# Every benchmark and algorithm on synthetic data, and a table of the results.
BENCHMARKS := emnist gld inaturalist digiface
SMOKE_RUNS := $(foreach b,$(BENCHMARKS),$(foreach a,fedemb fedavg ftrl \
  centralized,runs/smoke/$(b)_$(a)))

smoke: $(STAMP)
	rm -rf runs/smoke
	for name in $(notdir $(SMOKE_RUNS)); do \
	  case $$name in *_centralized) program=run_centralized;; \
	  *) program=run_federated;; esac; \
	  $(BIN)/python -m binaries.$$program --smoke --run_dir=runs/smoke/$$name \
	    --flagfile=binaries/flagfiles/$$name.flags || exit 1; \
	done
	$(BIN)/python -m binaries.tabulate $(SMOKE_RUNS)

# As many processes as there are cores, of which each holds 1.5 GB; more than
# eight would only wait for the longest file. A file's tests share fixtures and
# stay together, and tests/conftest.py says which files come first.
TEST_PROCESSES ?= $(shell n=$$(nproc); echo $$((n < 8 ? n : 8)))

# Two processes share the cores, and a library's idle threads wait for work by
# spinning: with one thread each, the same tests take a tenth less of a processor.
# gRPC's handlers of a fork can end a child that has nothing to do with gRPC.
TEST_ENVIRONMENT := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
  TF_NUM_INTEROP_THREADS=1 TF_NUM_INTRAOP_THREADS=1 GRPC_ENABLE_FORK_SUPPORT=0
PYTEST := $(TEST_ENVIRONMENT) $(BIN)/python -m pytest --numprocesses=$(TEST_PROCESSES) \
  --dist=loadfile --no-loadscope-reorder

test: $(STAMP)
	$(PYTEST)

# Slow tests often wait for programs that they start and end: with a process more
# than there are cores they take a seventh less time.
slow-test: $(STAMP)
	$(PYTEST) --numprocesses=$$(($(TEST_PROCESSES) + 1)) -m slow

# Format, lint, types, and the rules of the structure.

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --durations=0 tests/structure_test.py

# Builds everything and runs some tests with Bazel, which fetches nothing.
bazel: $(STAMP)
	@command -v bazel >/dev/null || { echo "error: bazel was not found;" \
	  "Debian/Ubuntu: apt install bazel-bootstrap bazel-rules-java" \
	  "bazel-rules-proto bazel-platforms" >&2; exit 1; }
	bazel build //...
	bazel test //tests/accounting/... //tests/planning/... //tests/data/...

# The site, with a reference made from the docstrings: build/docs/index.html.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) build *.egg-info runs/demo runs/features runs/smoke
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf .pytest_cache .ruff_cache
