# The commands of this project. `make help` lists them.
#
#   make generate PROMPT="..." MODEL=<Hub id, folder or .gguf file> ARGS="--static"
#   make finetune DATASET=<JSON lines> PROMPT="..." MODEL=<Hub id or folder> ARGS="--epochs 3"
#
# Variables of the set-up: PYTHON, TORCH_INDEX_URL, VENV, JOBS (scripts/setup.sh explains them).
SHELL := /bin/bash
VENV ?= .venv
PROMPT ?=
DATASET ?=
MODEL ?= build/models/SmolLM2-135M-Instruct
ARGS ?=
# Paths and sentences travel through the environment: spaces, quotes and dollars in them mean nothing to make or the shell.
export VENV PROMPT DATASET MODEL
override PROMPT := $(value PROMPT)
override DATASET := $(value DATASET)
PY := "$$VENV/bin/python"

.PHONY: help setup build generate finetune test test-c test-python test-models test-hardware test-sanitize fuzz operators-page architectures-page bench lint wheel clean
.NOTPARALLEL:

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | awk -F':.*## ' '{ printf "  make %-18s %s\n", $$1, $$2 }'

setup: ## virtual environment, packages, build
	@scripts/setup.sh run

build: setup ## the native part, incremental (same as setup: what is done is skipped)

generate: setup ## answers PROMPT on device neuron (ARGS="--static": compiled)
	@$(PY) examples/generate.py --model "$$MODEL" $(ARGS) $${PROMPT:+-- "$$PROMPT"}

finetune: ## LoRA on device neuron, PROMPT asked before and after (DATASET=my.jsonl)
	@scripts/setup.sh run finetune
	@$(PY) examples/finetune.py --model "$$MODEL" $${DATASET:+--dataset "$$DATASET"} $${PROMPT:+--prompt "$$PROMPT"} $(ARGS)

test: ## set-up, C tests, Python tests
	@scripts/setup.sh run test
	@$(MAKE) --no-print-directory test-c test-python

test-c: ## C tests of what is built
	@echo "== C tests =="
	@PATH="$$(cd "$$VENV/bin" && pwd):$$PATH" ctest --test-dir build --output-on-failure --progress

test-python: ## Python tests of what is built (ARGS="tests/test_views.py -x")
	@echo "== Python tests =="
	@$(PY) -m pytest $(ARGS)

test-models: ## the Hugging Face libraries on the device (long; ARGS="-k peft")
	@scripts/setup.sh run test finetune libraries
	@$(PY) -m pytest tests/models $(ARGS)

test-hardware: setup ## the trn driver, XLA in the place of the hardware (minutes)
	@scripts/setup.sh run test
	@$(PY) -m pytest tests/hardware $(ARGS)

fuzz: setup ## random programs on the device and on the CPU (ARGS=--seconds=3600)
	@$(PY) tests/fuzz.py $(ARGS)

test-sanitize: setup ## C tests under ASan + UBSan, then under TSan
	@scripts/test_sanitize.sh

operators-page: setup ## docs/operators.md: each operator's state, dtypes and StableHLO, measured
	@PYTHONPATH=tests $(PY) tests/operators_page.py $(ARGS)

architectures-page: ## docs/architectures.md: each causal language model of Transformers, measured (ARGS="--modes static")
	@scripts/setup.sh run test finetune libraries
	@OMP_NUM_THREADS=1 $(PY) tests/models/architectures_page.py $(ARGS)

bench: ## compares with PyTorch CPU, Inductor, llama.cpp and the memory's limit
	@scripts/setup.sh run bench
	@$(PY) benchmarks/bench.py $(ARGS)

lint: ## include order, headers as C11 and C++17, Python
	@scripts/setup.sh run lint
	@$(PY) scripts/check_includes.py
	@scripts/check_headers.sh
	@$(PY) -m ruff check torch_neuronx tests benchmarks examples scripts setup.py

# setuptools keeps what it copied for earlier wheels, modules that are gone included.
wheel: setup ## dist/torch_neuronx-*.whl
	@rm -rf build/lib* build/bdist*
	@$(PY) -m pip wheel --no-build-isolation --no-deps --wheel-dir dist .

clean: ## removes what was built, keeps .venv
	rm -rf build build-* dist *.egg-info torch_neuronx/_C*.so torch_neuronx/libtnx*.so* .pytest_cache .ruff_cache
