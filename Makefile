# User commands. Decisions are made in Python: harness_llm/ and setup/.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.SILENT:
MAKEFLAGS += --no-print-directory

# Settings of `make submission`, and their options of `harness-llm submit` (harness_llm/config/options.py).
OPTIONS := COMPANY:company SYSTEM_NAME:system-name MODEL:model GPU_NAME:gpu GPU_COUNT:gpu-count ROUND:round \
           DIVISION:division CATEGORY:category SCENARIOS:scenarios PROFILE:profile ENGINE:engine RAY_ADDRESS:ray
WORDS := $(foreach pair,$(OPTIONS),$(firstword $(subst :, ,$(pair)))) STAND_IN
# They select the environment: setup/builds.py and setup/environments.sh, setup/where.py.
BUILD := PYTHON GPU_NAME STAND_IN RAY_ADDRESS
WHERE := $(BUILD) ENVIRONMENT DOCKER
FOLDERS := MLPERF_SCRATCH_PATH LAB_MODEL LAB_DATASET
DEVICES := CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES
# Settings of the containers, read by harness_llm/containers (docs/containers.md): of their start, and of their build.
START := RUN_AS EXTRA_CA_CERT DOCKER_ARGS $(FOLDERS) $(DEVICES)
IMAGE := BASE_IMAGE WHEELHOUSE
SETTINGS := $(WORDS) AGAIN TREE PART RUN_ARGS COUNT PYTHON ENVIRONMENT DOCKER $(START) $(IMAGE)

# Settings that each target uses.
uses = $(foreach target,$1,$(eval uses-$(target) := $2))
$(call uses,submission doctor status,$(WORDS) AGAIN $(WHERE) $(START) $(IMAGE))
$(call uses,download,MODEL PART $(WHERE) $(START))
$(call uses,check,TREE ROUND $(WHERE))
# NVIDIA's RUN_ARGS are read by harness_llm/config/aliases.py.
$(call uses,run run_harness generate_engines,RUN_ARGS $(WORDS) PYTHON $(FOLDERS) $(DEVICES))
$(call uses,build link_dirs bench soak quantization-table stand-ins,$(BUILD) $(FOLDERS))
$(call uses,setup ray,$(BUILD))
$(call uses,prebuild,PYTHON GPU_NAME DOCKER $(START) $(IMAGE))
$(call uses,docker_clean,PYTHON DOCKER)
$(call uses,quark graders tools lint lock,PYTHON)
$(call uses,test test-quick test-all test-containers test-gpu-rehearsal test-gpu-settings test-gpu-nodes,PYTHON)
$(call uses,test-repeat,PYTHON COUNT)
$(call uses,help clean clean-environments clean-models clean-data clean-runs)

# Refuse misspelt settings, and settings of the command line that no goal uses.
typed := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
unknown := $(filter-out $(SETTINGS) MAKEFLAGS,$(typed))
$(if $(unknown),$(error unknown setting $(unknown); expected: $(SETTINGS)))
goals := $(or $(MAKECMDGOALS),$(.DEFAULT_GOAL))
used := $(filter $(foreach goal,$(goals),$(uses-$(goal))),$(SETTINGS))
unused := $(filter-out $(used) MAKEFLAGS,$(typed))
# make itself reports an unknown goal.
ifeq ($(filter-out $(patsubst uses-%,%,$(filter uses-%,$(.VARIABLES))),$(goals)),)
$(if $(unused),$(error unused setting $(unused) for $(goals); expected: $(or $(used),none)))
endif

$(foreach name,$(filter STAND_IN AGAIN,$(used)),$(if $(filter-out 0 1,$($(name))),$(error invalid $(name)=$($(name)); expected: 1 or 0)))

# Pass given settings through the environment, so that neither make nor the shell expands them.
given := $(foreach name,$(SETTINGS),$(if $(filter undefined,$(origin $(name))),,$(name)))
$(foreach name,$(given),$(eval override $(name) := $$(value $(name))))
export $(given)
options = $(foreach pair,$(OPTIONS),$(if $(filter $(firstword $(subst :, ,$(pair))),$1),$(call option,$(subst :, ,$(pair)))))
option = $${$(firstword $1):+"--$(lastword $1)=$$$(firstword $1)"}
switch = $(if $(filter 1,$($1)),--$2)

# Caches of libraries are in the checkout. Only a Hugging Face login is read from huggingface_hub's usual folder,
# as in find_token of harness_llm/containers/secrets.py.
export HF_TOKEN_PATH := $(or $(HF_TOKEN_PATH),$(or $(HF_HOME),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/huggingface)/token)
export HF_HOME ?= $(CURDIR)/build/cache/huggingface
export TORCHINDUCTOR_CACHE_DIR ?= $(CURDIR)/build/cache/torchinductor
export TRITON_HOME ?= $(CURDIR)/build/cache/triton
export VLLM_CACHE_ROOT ?= $(CURDIR)/build/cache/vllm
export VLLM_CONFIG_ROOT ?= $(CURDIR)/build/cache/vllm-config
export XDG_CACHE_HOME ?= $(CURDIR)/build/cache
export DO_NOT_TRACK := 1
# Messages name settings and targets of make (harness_llm/config/commands.py).
export HARNESS_LLM_MAKE := 1
export VLLM_NO_USAGE_STATS := 1
unexport PYTHONHOME PYTHONPATH

# Set up the build of vLLM for this machine's accelerators; images have their own. See setup/builds.py.
# exec: a signal to make reaches the program, not only its shell.
LAYERS := engine loadgen quantize $(if $(RAY_ADDRESS),ray)
READY = bin=$$(setup/environments.sh here $(LAYERS)) && exec "$$bin"
# Run harness-llm locally, or in the container $1 if `make submission` uses containers.
harness-llm = where=$$(setup/environments.sh where) || exit; \
	if [ "$$where" = container ]; then exec setup/start_$(strip $1)_env.sh harness-llm $2; else $(READY)/harness-llm $2; fi
# The tests use the CPU build on every machine.
TESTS := $(if $(HARNESS_LLM_ENVIRONMENTS),$(HARNESS_LLM_ENVIRONMENTS)/).venv/bin

.PHONY: help
help: ## list the targets
	echo 'usage: make TARGET [SETTING=value ...]'
	echo
	sed -nE 's/^([a-z_-]+):[^#]*## /\1\t/p' Makefile | while IFS='	' read -r target text; do \
	    printf '  %-20s %s\n' "$$target" "$$text"; done
	echo
	echo 'settings of `make submission`, all optional: $(WORDS) AGAIN'
	echo 'example: make submission COMPANY="Acme" SYSTEM_NAME="my-box"'
	echo 'make exits with 2 after any failure. The number in "Error N" is the exit code of harness-llm: 1 (a check or'
	echo 'gate failed), 2 (wrong usage or configuration), 3 (missing software, file or device), 4 (a run failed) or'
	echo '130 (interrupted).'

.PHONY: submission
submission: ## run a benchmark, check and package the submission; run again to resume; ENVIRONMENT=container or local
	where=$$(setup/environments.sh where) || exit; \
	if [ "$$where" = container ]; then \
	    setup/environments.sh host && exec .venv-host/bin/python -m harness_llm.containers submit $(said); \
	else \
	    $(READY)/harness-llm submit $(said); \
	fi

.PHONY: doctor
doctor: ## run the checks of `make submission` without downloads and runs
	where=$$(setup/environments.sh where) || exit; \
	if [ "$$where" = container ]; then \
	    setup/environments.sh host && exec .venv-host/bin/python -m harness_llm.containers doctor $(said); \
	else \
	    $(READY)/harness-llm doctor $(said); \
	fi

.PHONY: status
status: ## list completed and missing runs of `make submission`, with its settings: SYSTEM_NAME=my-box
	$(call harness-llm, submission, status $(said))

submission doctor status: said = $(call options,$(WORDS)) $(call switch,STAND_IN,stand-in) $(call switch,AGAIN,again)

.PHONY: download
download: ## download model and data: MODEL=llama2-70b, PART=dataset, calibration, livecodebench, model or draft
	$(call harness-llm, model_and_dataset, download $(said))

download: said = $(call options,MODEL) $${PART:+--part="$$PART"}

.PHONY: check
check: ## check a submission tree: TREE=path/to/inference_results_6.1
	where=$$(setup/environments.sh where) || exit; \
	if [ "$$where" = container ]; then \
	    setup/environments.sh host && exec .venv-host/bin/harness-llm check $(said); \
	else \
	    $(READY)/harness-llm check $(said); \
	fi

check: said = $(if $(TREE),"$$TREE",$(error missing TREE; expected: make check TREE=submission/inference_results_6.1)) $(call options,ROUND)

.PHONY: run
run: generate_engines run_harness ## NVIDIA's target: RUN_ARGS="--benchmarks=llama2-70b --scenarios=offline,server"

.PHONY: run_harness
run_harness: ## NVIDIA's target: LoadGen runs of RUN_ARGS, also if completed before
	$(READY)/harness-llm run --environment --run-args "$$RUN_ARGS"

.PHONY: generate_engines
generate_engines: ## NVIDIA's target: prints that ENGINE has no such step
	$(READY)/python -m harness_llm.pipeline.make_targets generate_engines

.PHONY: build
build: link_dirs ## NVIDIA's target: set up, link folders, clone mlcommons/inference
	$(READY)/python -m harness_llm.pipeline.make_targets clone_inference

.PHONY: link_dirs
link_dirs: ## NVIDIA's target: link folders of MLPERF_SCRATCH_PATH below build/
	$(READY)/python -m harness_llm.pipeline.make_targets link_dirs

.PHONY: bench
bench: ## benchmark the harness itself (hours; parts: `python -m benchmarks --help`)
	$(READY)/python -m benchmarks

.PHONY: soak
soak: ## kill and restart replicas for 20 minutes; check that every query completes once
	$(READY)/python -m benchmarks.soak

.PHONY: quantization-table
quantization-table: quark ## quantize the demo with every recipe and score it (about 20 minutes)
	$(READY)/python -m benchmarks.quantization

.PHONY: stand-ins
stand-ins: ## run a stand-in of every benchmark in every round (about 30 minutes)
	$(READY)/python -m benchmarks.stand_ins

.PHONY: setup
setup: ## create or update .venv, on NVIDIA nodes .venv-cuda; PYTHON=python3.11 selects the interpreter
	bin=$$(setup/environments.sh here $(LAYERS)) && echo "installed in $$bin"

.PHONY: quark
quark: ## create or update .venv-quark for AMD's Quark; requires a C++ compiler
	setup/environments.sh quark

.PHONY: graders
graders: ## create or update .venv-graders for the reference's accuracy scripts
	setup/environments.sh graders

.PHONY: ray
ray: ## install Ray for a cluster: docs/cluster.md
	bin=$$(setup/environments.sh here engine ray) && echo "start Ray with $$bin/ray"

.PHONY: tools
tools:
	setup/environments.sh cpu loadgen quantize dev ray optuna

# Each worker runs whole modules in a random order; PYTEST_ADDOPTS=--randomly-seed=N repeats an order.
WORKERS := 2
PYTEST = $(TESTS)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder \
    --ignore=tests/containers --ignore=tests/gpu_rehearsal
# One Docker daemon and one node serve all tests, and each step is measured.
IN_ORDER := $(TESTS)/python -m pytest -p no:randomly
# Temporary files are in memory (tests/temporary_root.py), except container images.
ON_DISK := TMPDIR="$${TMPDIR:-/tmp}"

# The engines of the submission wait as much as they compute.
test: WORKERS := 3
.PHONY: test
test: tools ## run the tests: rules, faults, and one submission from command to checked tree (5 minutes on two cores)
	$(PYTEST) -m "not slow"

.PHONY: test-quick
test-quick: tools ## run the tests that start no engine and no server (a minute on two cores)
	$(PYTEST) -m "not engine and not processes and not slow"

.PHONY: test-all
test-all: tools ## run all tests but those of containers and GPUs; quantization needs `make quark` too
	$(PYTEST)

.PHONY: test-repeat
test-repeat: tools ## run the tests with processes COUNT times (20) and count the failures
	failed=0; for run in $$(seq $${COUNT:-20}); do \
	    $(PYTEST) -m "processes and not slow" || failed=$$((failed + 1)); done; \
	echo "$$failed of $${COUNT:-20} runs failed"; test $$failed = 0

.PHONY: test-containers
test-containers: tools ## run the tests of the containers, as root: they install Docker and start a daemon of their own
	$(ON_DISK) $(IN_ORDER) -m containers tests/containers -rP

.PHONY: test-gpu-rehearsal
test-gpu-rehearsal: test-gpu-settings test-gpu-nodes ## everything about GPUs that can be tried without one

.PHONY: test-gpu-settings
test-gpu-settings: tools ## every NVIDIA setting by the CUDA build of vLLM, with stubs of NVML and the driver
	setup/environments.sh cuda ray-cuda
	$(ON_DISK) $(IN_ORDER) -m gpu_rehearsal tests/gpu_rehearsal -rP

.PHONY: test-gpu-nodes
test-gpu-nodes: tools ## make submission in containers on nodes with fake GPUs, as root
	$(ON_DISK) $(IN_ORDER) -m gpu_rehearsal tests/containers -rP

.PHONY: lint
lint: tools ## ruff check, ruff format --check, import layers, mypy
	$(TESTS)/ruff check .
	$(TESTS)/ruff format --check .
	$(TESTS)/lint-imports --no-logo
	$(TESTS)/mypy

.PHONY: lock
lock: ## pin the packages of pyproject.toml, keeping valid pins
	setup/environments.sh lock

.PHONY: prebuild
prebuild: ## NVIDIA's target: build the submission container and start a shell in it
	setup/build_submission_env.sh
	setup/start_submission_env.sh

.PHONY: docker_clean
docker_clean: ## remove the container images
	setup/containers.sh clean

.PHONY: clean
clean: ## remove caches of test tools
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find harness_llm tests setup benchmarks -name __pycache__ -prune -exec rm -rf {} +

.PHONY: clean-environments
clean-environments: ## remove the virtual environments and the package cache
	rm -rf .venv .venv-cuda .venv-host .venv-quantize .venv-quantize-cuda .venv-quark .venv-graders build/pip build/uv build/cache/uv

.PHONY: clean-models
clean-models: ## remove all checkpoints
	rm -rf build/models

.PHONY: clean-data
clean-data: ## remove all data sets and reference scores
	rm -rf build/data

.PHONY: clean-runs
clean-runs: ## remove all runs
	rm -rf build/logs
