# Targets for users. The logic is Python: harness_llm/ and setup/environments.py.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.SILENT:
MAKEFLAGS += --no-print-directory

# Settings of `make submission`, and their options of `harness-llm submit` (harness_llm/config/options.py).
OPTIONS := COMPANY:company SYSTEM_NAME:system-name MODEL:model GPU_NAME:gpu GPU_COUNT:gpu-count ROUND:round \
           DIVISION:division CATEGORY:category SCENARIOS:scenarios PROFILE:profile ENGINE:engine RAY_ADDRESS:ray
# Settings of NVIDIA's Makefile, read by harness_llm/pipeline/make_targets.py and harness_llm/config/aliases.py.
ALIASES := RUN_ARGS MLPERF_SCRATCH_PATH
# Settings of the containers, read by harness_llm/containers (docs/containers.md).
CONTAINERS := ENVIRONMENT RUN_AS LAB_MODEL LAB_DATASET BASE_IMAGE WHEELHOUSE EXTRA_CA_CERT DOCKER DOCKER_ARGS \
              HIP_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES
SETTINGS := $(foreach pair,$(OPTIONS),$(firstword $(subst :, ,$(pair)))) STAND_IN PART TREE PYTHON $(ALIASES) $(CONTAINERS)

# A misspelt setting would otherwise be ignored without a message.
given := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
unknown := $(filter-out $(SETTINGS) MAKEFLAGS,$(given))
$(if $(unknown),$(error there is no setting $(unknown); there are $(SETTINGS)))

ifneq ($(filter-out 0 1,$(STAND_IN)),)
$(error STAND_IN is 1 or 0, not $(STAND_IN))
endif

# The shell gets settings as environment variables, so that no character in them is special.
$(foreach name,$(SETTINGS),$(if $(filter undefined,$(origin $(name))),,$(eval override $(name) := $$(value $(name)))))
export $(SETTINGS)
options = $(foreach pair,$(OPTIONS),$(if $(filter $(firstword $(subst :, ,$(pair))),$1),$(call option,$(subst :, ,$(pair)))))
option = $${$(firstword $1):+"--$(lastword $1)=$$$(firstword $1)"}
stand-in = $(if $(filter 1,$(STAND_IN)),--stand-in)

# Caches of libraries are in the checkout instead of the home folder, which only has the Hugging Face login.
export HF_TOKEN_PATH ?= $(HOME)/.cache/huggingface/token
export HF_HOME ?= $(CURDIR)/build/cache/huggingface
export TORCHINDUCTOR_CACHE_DIR ?= $(CURDIR)/build/cache/torchinductor
export TRITON_HOME ?= $(CURDIR)/build/cache/triton
export VLLM_CACHE_ROOT ?= $(CURDIR)/build/cache/vllm
export VLLM_CONFIG_ROOT ?= $(CURDIR)/build/cache/vllm-config
export XDG_CACHE_HOME ?= $(CURDIR)/build/cache
export DO_NOT_TRACK := 1
export VLLM_NO_USAGE_STATS := 1
unexport PYTHONHOME PYTHONPATH

# Sets up the build of vLLM for this machine's accelerators; an image has its own. See setup/builds.py.
LAYERS := engine loadgen quantize $(if $(RAY_ADDRESS),ray)
READY = bin=$$(setup/environments.sh here $(LAYERS)) && "$$bin"
# harness-llm here, or in the container $1 where `make submission` uses containers.
harness-llm = where=$$(setup/environments.sh where) || exit; \
	if [ "$$where" = container ]; then setup/start_$(strip $1)_env.sh harness-llm $2; else $(READY)/harness-llm $2; fi
# The tests use the CPU build on every machine.
TESTS := $(if $(HARNESS_LLM_ENVIRONMENTS),$(HARNESS_LLM_ENVIRONMENTS)/).venv/bin

.PHONY: help
help: ## list the targets
	echo 'usage: make TARGET [SETTING=value ...]'
	echo
	sed -nE 's/^([a-z_-]+):[^#]*## /\1\t/p' Makefile | while IFS='	' read -r target text; do \
	    printf '  %-20s %s\n' "$$target" "$$text"; done
	echo
	echo 'settings of `make submission`, all optional: $(foreach pair,$(OPTIONS),$(firstword $(subst :, ,$(pair)))) STAND_IN'
	echo 'example: make submission COMPANY="Acme" SYSTEM_NAME="my-box"'
	echo 'make itself ends with 2 on any failure; the exit code of harness-llm is the number in "Error 1" (a check or'
	echo 'gate failed), 2 (wrong use or configuration), 3 (missing on this machine), 4 (a run failed) or 130 (interrupted).'

.PHONY: submission
submission: ## everything from models to the checked and packed tree; again to resume; ENVIRONMENT=container or local
	where=$$(setup/environments.sh where) || exit; \
	if [ "$$where" = container ]; then \
	    setup/environments.sh host && .venv-host/bin/python -m harness_llm.containers submit $(said); \
	else \
	    $(READY)/harness-llm submit $(said); \
	fi

.PHONY: doctor
doctor: ## check what can refuse a submission, with its settings; nothing is downloaded or built but environments
	where=$$(setup/environments.sh where) || exit; \
	if [ "$$where" = container ]; then \
	    setup/environments.sh host && .venv-host/bin/python -m harness_llm.containers doctor $(said); \
	else \
	    $(READY)/harness-llm doctor $(said); \
	fi

submission doctor: said = $(call options,$(SETTINGS)) $(stand-in)

.PHONY: status
status: ## which runs are done, and which are missing: SYSTEM_NAME=my-box
	$(call harness-llm, submission, status $(said))

status: said = $(call options,SYSTEM_NAME MODEL GPU_NAME ROUND DIVISION SCENARIOS PROFILE) $(stand-in)

.PHONY: download
download: ## fetch a benchmark's model and data: MODEL=llama2-70b, PART=dataset, calibration, livecodebench or model
	$(call harness-llm, model_and_dataset, download $(said))

download: said = $(call options,MODEL) $${PART:+--part="$$PART"}

.PHONY: check
check: ## check a finished tree: TREE=path/to/inference_results_v6.1
	where=$$(setup/environments.sh where) || exit; \
	if [ "$$where" = container ]; then \
	    setup/environments.sh host && .venv-host/bin/harness-llm check $(said); \
	else \
	    $(READY)/harness-llm check $(said); \
	fi

check: said = $${TREE:+"$$TREE"} $(call options,ROUND)

.PHONY: run
run: generate_engines run_harness ## as NVIDIA's: RUN_ARGS="--benchmarks=llama2-70b --scenarios=offline,server"

.PHONY: run_harness
run_harness: ## LoadGen runs as RUN_ARGS says, whatever was run before
	$(READY)/harness-llm run --environment --run-args "$$RUN_ARGS"

.PHONY: generate_engines
generate_engines: ## for an ENGINE that has such a step
	$(READY)/python -m harness_llm.pipeline.make_targets generate_engines

.PHONY: build
build: link_dirs ## links, LoadGen of every round, and mlcommons/inference at its pinned commit
	$(READY)/python -m harness_llm.pipeline.make_targets clone_inference

.PHONY: link_dirs
link_dirs: ## show the scratch space MLPERF_SCRATCH_PATH below build/
	$(READY)/python -m harness_llm.pipeline.make_targets link_dirs

.PHONY: bench
bench: ## measure the harness itself (hours; `python -m benchmarks --help` names the parts)
	$(READY)/python -m benchmarks

.PHONY: soak
soak: ## replicas killed and started again for 20 minutes, every query answered once
	$(READY)/python -m benchmarks.soak

.PHONY: quantization-table
quantization-table: quark ## the demo quantized by every recipe, and scored (about 20 minutes)
	$(READY)/python -m benchmarks.quantization

.PHONY: stand-ins
stand-ins: ## every benchmark in every round, small, with the demo's model (about 30 minutes)
	$(READY)/python -m benchmarks.stand_ins

.PHONY: setup
setup: ## make or update .venv, on NVIDIA nodes .venv-cuda; PYTHON=python3.11 chooses the interpreter
	bin=$$(setup/environments.sh here $(LAYERS)) && echo "the programs are in $$bin"

.PHONY: quark
quark: ## make or update .venv-quark, where AMD's Quark quantizes; needs a C++ compiler
	setup/environments.sh quark

.PHONY: graders
graders: ## make or update .venv-graders, where the accuracy scripts of the reference run
	setup/environments.sh graders

.PHONY: ray
ray: ## add Ray to the environment of `make setup`, for a cluster: docs/cluster.md
	bin=$$(setup/environments.sh here engine ray) && echo "start it with $$bin/ray"

.PHONY: tools
tools:
	setup/environments.sh cpu loadgen quantize dev ray

.PHONY: test
test: tools ## run the tests
	$(TESTS)/python -m pytest

.PHONY: test-containers
test-containers: tools ## run the tests of the containers, as root: they install Docker and start a daemon of their own
	$(TESTS)/python -m pytest -m containers tests/containers -rP

.PHONY: test-gpu-rehearsal
test-gpu-rehearsal: test-gpu-settings test-gpu-nodes ## everything about GPUs that can be tried without one

.PHONY: test-gpu-settings
test-gpu-settings: tools ## every NVIDIA setting by the CUDA build of vLLM, with stubs of NVML and the driver
	setup/environments.sh cuda ray-cuda
	$(TESTS)/python -m pytest -m gpu_rehearsal tests/gpu_rehearsal -rP

.PHONY: test-gpu-nodes
test-gpu-nodes: tools ## make submission in containers on nodes with fake GPUs, as root
	$(TESTS)/python -m pytest -m gpu_rehearsal tests/containers -rP

.PHONY: lint
lint: tools ## ruff check, ruff format --check, import layers, mypy
	$(TESTS)/ruff check .
	$(TESTS)/ruff format --check .
	$(TESTS)/lint-imports --no-logo
	$(TESTS)/mypy

.PHONY: lock
lock: ## pin the packages that pyproject.toml leads to, keeping the pins that still fit
	setup/environments.sh lock

.PHONY: prebuild
prebuild: ## build the container where benchmarks run, and enter it
	setup/build_submission_env.sh
	setup/start_submission_env.sh

.PHONY: docker_clean
docker_clean: ## remove the images of the containers
	setup/containers.sh clean

.PHONY: clean
clean: ## remove what test tools leave; never runs, models, data or environments
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find harness_llm tests setup benchmarks -name __pycache__ -prune -exec rm -rf {} +

.PHONY: clean-environments
clean-environments: ## remove the virtual environments and the package cache
	rm -rf .venv .venv-cuda .venv-host .venv-quantize .venv-quantize-cuda .venv-quark .venv-graders build/pip build/uv build/cache/uv

.PHONY: clean-models
clean-models: ## remove all checkpoints
	rm -rf build/models

.PHONY: clean-data
clean-data: ## remove all data sets and reference answers
	rm -rf build/data

.PHONY: clean-runs
clean-runs: ## remove all runs
	rm -rf build/logs
