# `make help` lists the targets. Everything that is made lies under build/.

GO      ?= go
PYTHON  ?= python3
BIN     := build/shoal
PYLIB   := build/python
TRITON  := build/triton-venv
PEERS   := build/python-peers
ANALYZER := build/perf_analyzer
# Counts, not seconds: go test calls a fuzz run that its own deadline ends in the
# wrong moment a failure (context deadline exceeded).
FUZZTIME ?= 100000x
FUZZREST ?= 20000x
FUZZ     ?= Fuzz
RACE     ?= ./...
FUZZMAIN := FuzzScanner|FuzzDecode|FuzzCodec|FuzzParse
ARGS    ?=
# How the compiler uses the profile (cmd/shoal/default.pgo): the build that people try is plain, because a profile
# makes Go compile every package anew. What is measured, installed or released is built with it.
PGO     ?= off
release install wheels attack soak perf-criteria profile bench-%: PGO = auto
# See deploy/build.sh.
COMPILE := GOGC=off GOMEMLIMIT=500MiB $(GO)
# How many files of end-to-end tests run side by side.
E2E_JOBS ?= 3

# Nothing of ours uses cgo: the build needs nothing but Go.
export CGO_ENABLED ?= 0
# gRPC's own traces bring templates in, which make the binary a sixth larger (internal/arch/arch_test.go).
# Tests and linters go without the profile: with it they compile every package twice. Builds name theirs.
export GOFLAGS := $(shell $(GO) env GOFLAGS) -tags=grpcnotrace -pgo=off

.DEFAULT_GOAL := help
.PHONY: help build cross run test test-go test-python test-e2e runtime check race fuzz lint fmt golden generate install example-ocr release wheels test-wheels image test-image docs \
	attack stress soak soak-python soak-reload perf-criteria profile bench-overload bench-repository bench-size bench-triton bench-perf bench-ladder bench-models bench-batcher bench-cache bench-python bench-pipeline bench-go clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the binary into build/shoal
	@echo "building $(BIN): about a minute with empty caches$(if $(filter auto,$(PGO)), - three with the profile -), seconds otherwise"
	@GO="$(GO)" deploy/build.sh $(BIN) $(PGO)

# Platforms of Go and of wheels. Nothing in the binary needs a certain C library; only the loader's path differs.
PLATFORMS := linux-amd64=manylinux_2_17_x86_64 linux-arm64=manylinux_2_17_aarch64 \
	linux-amd64-musl=musllinux_1_1_x86_64 linux-arm64-musl=musllinux_1_1_aarch64 darwin-arm64=macosx_12_0_arm64
LOADER_amd64 := /lib/ld-musl-x86_64.so.1
LOADER_arm64 := /lib/ld-musl-aarch64.so.1

release: ## build the binaries of all platforms with the profile into build/release; a quarter of an hour with empty caches
	@mkdir -p build/release
	@set -e; for p in $(foreach p,$(PLATFORMS),$(firstword $(subst =, ,$p))); do \
		os=$${p%%-*}; rest=$${p#*-}; arch=$${rest%%-*}; loader=; \
		case $$p in *-amd64-musl) loader="-I $(LOADER_amd64)";; *-arm64-musl) loader="-I $(LOADER_arm64)";; esac; \
		begin=$$(date +%s); echo "building build/release/shoal-$$p ..."; \
		GOOS=$$os GOARCH=$$arch $(COMPILE) build -pgo=$(PGO) -trimpath -ldflags "-s -w $$loader" -o build/release/shoal-$$p ./cmd/shoal; \
		echo "  built in $$(($$(date +%s) - begin)) s"; done

wheels: release ## write Python wheels with the binary inside into build/wheels: pip install "shoal[onnx]" --find-links build/wheels
	$(PYTHON) deploy/wheels.py --to build/wheels $(foreach p,$(PLATFORMS),$(lastword $(subst =, ,$p))=build/release/shoal-$(firstword $(subst =, ,$p)))

image: PGO = auto
image: ## write container images without a daemon into build/image: ONNX models, and Python models; needs Debian or Ubuntu
	@mkdir -p build/release
	@echo "building build/release/shoal: one to two minutes with empty caches"
	@$(COMPILE) build -pgo=$(PGO) -trimpath -ldflags '-s -w' -o build/release/shoal ./cmd/shoal
	$(PYTHON) deploy/image.py --binary build/release/shoal --to build/image

test-image: ## run the images under runc or podman: serve, answer, stop; needs root (ARGS adds flags, such as --with podman)
	$(PYTHON) deploy/try_image.py --images build/image $(ARGS)

test-wheels: ## install the wheel into an empty environment and time it from pip install to the first answers
	$(PYTHON) deploy/try_wheels.py --wheels build/wheels

build/mkdocs/.done: Makefile
	rm -rf build/mkdocs
	$(PYTHON) -m venv build/mkdocs
	build/mkdocs/bin/pip install --quiet --disable-pip-version-check mkdocs==1.6.1
	touch $@

docs: build/mkdocs/.done ## render the documents as a static site with search into build/docs/site, and check their links
	build/mkdocs/bin/python deploy/docs.py --to build/docs

runtime: build ## download ONNX Runtime to the user's data folder, unless one is found
	$(BIN) runtime install --if-missing

run: runtime ## serve the demo models and show a request (ARGS adds flags)
	$(BIN) serve --demo $(ARGS)

test: test-go test-python test-e2e ## run all tests; needs Go, Python 3 and pip, no C compiler

test-go: runtime $(PYLIB)/.done ## run the Go tests
	$(GO) test ./...

test-python: $(PYLIB)/.done ## run the tests of the Python package
	PYTHONPATH=$(abspath $(PYLIB)) $(PYTHON) -m pytest -q test/python

test-e2e: runtime $(PYLIB)/.done ## run the real clients against the built binary; a test that fails is tried once more and listed as RERUN
	SHOAL=$(abspath $(BIN)) PYTHONPATH=$(abspath $(PYLIB)) $(PYTHON) -m pytest -q --durations=15 --reruns 1 -raR -n $(E2E_JOBS) --dist loadfile test/e2e

$(PYLIB)/.done: test/e2e/requirements.txt
	rm -rf $(PYLIB)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --target $(PYLIB) -r $<
	touch $@

check: lint cross test race fuzz ## all of it; CI runs the same with shorter fuzzing

race: runtime $(PYLIB)/.done ## run the Go tests under the race detector; needs a C compiler
	CGO_ENABLED=1 $(GO) test -race $(RACE)

fuzz: ## run every fuzz target: those of the protocols and the configuration FUZZTIME inputs (100000x), the others fewer
	@set -e; for pkg in $$($(GO) list ./...); do \
		dir=$$($(GO) list -f '{{.Dir}}' $$pkg); \
		for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9]+' $$dir/*_test.go 2>/dev/null | sed 's/func //' | grep -E '$(FUZZ)'); do \
			case $$target in $(FUZZMAIN)) time=$(FUZZTIME);; *) time=$(FUZZREST);; esac; \
			echo "fuzz $$pkg $$target $$time"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $$time -fuzzminimizetime 5x $$pkg; \
		done; \
	done

lint: ## gofumpt, vet, staticcheck, generated files fresh
	@out=$$($(GO) tool -modfile=tools.mod gofumpt -l cmd internal bench); test -z "$$out" || { echo "gofumpt (make fmt fixes it):"; echo "$$out"; exit 1; }
	$(COMPILE) vet ./...
	$(GO) tool -modfile=tools.mod staticcheck ./...

cross: ## build for other systems
	GOOS=darwin GOARCH=arm64 $(COMPILE) build ./...
	GOOS=linux GOARCH=arm64 $(COMPILE) build ./...

fmt: ## format the Go code
	$(GO) tool -modfile=tools.mod gofumpt -w cmd internal bench

golden: runtime $(PYLIB)/.done ## rewrite the recorded curl transcripts; review the diff
	UPDATE_GOLDEN=1 SHOAL=$(abspath $(BIN)) PYTHONPATH=$(abspath $(PYLIB)) $(PYTHON) -m pytest -q --durations=15 test/e2e

generate: ## generate the protocol's Go code from proto/; downloads protoc with pip
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --target build/protoc grpcio-tools==1.76.0
	GOBIN=$(abspath build) $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
	PATH=$(abspath build):$$PATH PYTHONPATH=build/protoc $(PYTHON) -m grpc_tools.protoc -I proto \
		--go_out=. --go_opt=module=shoal model_config.proto grpc_service.proto

install: build ## install shoal, with links under the originals' names, into PREFIX/bin (default /usr/local)
	install -D $(BIN) $(or $(PREFIX),/usr/local)/bin/shoal
	for name in tritonserver perf_analyzer multi-model-server mxnet-model-server model-archiver torchserve torch-model-archiver; do \
		ln -sf shoal $(or $(PREFIX),/usr/local)/bin/$$name; done

build/ocr/.done: examples/ocr/requirements.txt
	rm -rf build/ocr
	$(PYTHON) -m venv build/ocr/venv
	build/ocr/venv/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

example-ocr: runtime build/ocr/.done ## read the text of a picture: as an ensemble and as one model that calls others; draws the boxes
	build/ocr/venv/bin/python examples/ocr/fetch.py build/ocr
	SHOAL=$(abspath $(BIN)) PYTHONPATH=$(abspath python) build/ocr/venv/bin/python examples/ocr/example.py build/ocr

stress: ## a minute of submit, cancel, deadline, close and failure under the race detector
	CGO_ENABLED=1 $(GO) test -race ./internal/sched -run Stress -stress 60s -v
	CGO_ENABLED=1 $(GO) test -race ./internal/protocol/session -run ComeAndGo -stress 60s -v
	CGO_ENABLED=1 $(GO) test -race ./internal/engine -run 'EnsemblesSurvive|EnsemblesShare' -ensemble-requests 10000 -v

attack: runtime $(PYLIB)/.done ## ten minutes of hostile clients: the cost of each kind, then all together beside good clients (ARGS adds flags)
	PYTHONPATH=$(abspath $(PYLIB)) $(GO) run ./bench/attack --python $(PYTHON) $(ARGS)

soak: runtime $(PYLIB)/.done ## an hour (DURATION=2m: two minutes) of both protocols, cancels and killed workers, race detector build; needs a C compiler
	CGO_ENABLED=1 $(GO) build -race -o build/shoal-race ./cmd/shoal
	PYTHONPATH=$(abspath $(PYLIB)) $(GO) run ./bench/soak --python $(PYTHON) --duration $(or $(DURATION),1h) $(ARGS)

soak-python: runtime $(PYLIB)/.done ## five minutes of random kills of Python workers under load, and a thousand restarts
	SHOAL=$(abspath $(BIN)) PYTHONPATH=$(abspath $(PYLIB)) SHOAL_KILL_SECONDS=300 SHOAL_RESTARTS=1000 \
		$(PYTHON) -m pytest -q -o faulthandler_timeout=1800 test/e2e/test_python_soak.py test/e2e/test_python_faults.py -k "kills or leak"

.PHONY: soak-sessions
soak-sessions: $(PYLIB)/.done ## ten minutes of 64 sessions whose clients are killed and started at random, race detector build; needs a C compiler
	CGO_ENABLED=1 $(GO) build -race -o build/shoal-race ./cmd/shoal
	SHOAL=$(abspath build/shoal-race) PYTHONPATH=$(abspath $(PYLIB)) SHOAL_SESSION_SECONDS=$(or $(SECONDS),600) SHOAL_SESSION_CLIENTS=64 \
		$(PYTHON) -m pytest -q -s -o faulthandler_timeout=1800 test/e2e/test_sessions.py -k random

soak-reload: runtime $(PYLIB)/.done ## a minute each of callers while their model is reloaded, resized and broken, 500 reloads, and 50 edits under --reload
	SHOAL=$(abspath $(BIN)) PYTHONPATH=$(abspath $(PYLIB)) SHOAL_RELOAD_SECONDS=60 SHOAL_RELOADS=500 SHOAL_EDITS=50 \
		$(PYTHON) -m pytest -q -rP --durations=8 -o faulthandler_timeout=1800 test/e2e/test_control_load.py test/e2e/test_reload.py

$(TRITON)/.done:
	rm -rf $(TRITON)
	$(PYTHON) -m venv $(TRITON)
	$(TRITON)/bin/pip install --quiet --disable-pip-version-check nvidia-pytriton==0.7.0
	touch $@

bench-triton: runtime $(TRITON)/.done ## compare with a real tritonserver (ARGS adds flags)
	$(GO) run ./bench/triton $(ARGS)

# The last wheel with perf_analyzer in it. It wants Debian's libb64 and a CUDA runtime, which Triton's package has.
$(ANALYZER)/.done: $(TRITON)/.done
	rm -rf $(ANALYZER)
	mkdir -p $(ANALYZER)/lib
	$(PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --platform manylinux1_x86_64 --dest $(ANALYZER) tritonclient==2.51.0
	$(PYTHON) -m zipfile -e $(ANALYZER)/tritonclient-2.51.0-*.whl $(ANALYZER)/wheel
	install -m 755 $(ANALYZER)/wheel/tritonclient-2.51.0.data/data/bin/perf_analyzer $(ANALYZER)/perf_analyzer
	cd $(ANALYZER) && apt-get download -q libb64-0d && dpkg -x libb64-0d_*.deb deb && cp deb/usr/lib/*/libb64.so.0d lib/
	ln -s $$(ls $(CURDIR)/$(TRITON)/lib/python3*/site-packages/nvidia_pytriton.libs/libcudart-*.so.12* | head -n 1) $(ANALYZER)/lib/libcudart.so.12
	touch $@

bench-perf: runtime $(TRITON)/.done $(ANALYZER)/.done ## the load generator beside NVIDIA's perf_analyzer, and its limits
	$(GO) build -o build/bench-perf ./bench/perf
	build/bench-perf $(ARGS)

bench-size: runtime $(TRITON)/.done ## start time, memory and binary beside a real tritonserver
	$(GO) run ./bench/size $(ARGS)

bench-repository: runtime ## 200 models of 1 MB, and 2,000 idle models, beside a tritonserver that you name (ARGS adds flags)
	$(GO) run ./bench/repository $(ARGS)

bench-ladder: runtime ## the gain from dynamic batching and a second instance, with a plot
	$(GO) run ./bench/ladder $(ARGS)

bench-models: runtime ## batching on models of many costs, beside the best static setting, ONNX Runtime alone and a tritonserver that you name; takes hours: ARGS=--quick
	$(GO) run -pgo=cmd/shoal/default.pgo ./bench/models $(ARGS)

bench-batcher: ## the CPU cost of the batcher alone, per request
	$(GO) run -pgo=cmd/shoal/default.pgo ./bench/batcher $(ARGS)

bench-cache: runtime ## the response cache: a hit beside a miss (ARGS adds flags)
	$(GO) run ./bench/cache $(ARGS)

$(PEERS)/.done: bench/python/servers/requirements.txt
	rm -rf $(PEERS)
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

build/mms-venv/.done:
	$(PYTHON) -m venv build/mms-venv
	build/mms-venv/bin/pip install --quiet --disable-pip-version-check multi-model-server==1.1.11 model-archiver setuptools numpy
	touch $@

build/ts-venv/.done:
	$(PYTHON) -m venv build/ts-venv
	build/ts-venv/bin/pip install --quiet --disable-pip-version-check torchserve==0.12.0 torch==2.4.1 "numpy<2" setuptools psutil pyyaml requests packaging enum-compat
	touch $@

bench-mms: build build/mms-venv/.done build/ts-venv/.done $(PYLIB)/.done ## model archives beside the real Multi Model Server and TorchServe (its torch is 3 GB); needs Java 17 and wrk (ARGS adds flags)
	PYTHONPATH=$(abspath $(PYLIB)) $(PYTHON) bench/mms/bench.py --shoal $(BIN) --mms build/mms-venv --torchserve build/ts-venv $(ARGS)

.PHONY: bench-sessions
bench-sessions: build $(PYLIB)/.done ## sessions beside HTTP and gRPC, and with SDBI=folder, a checkout of it, SDBI's own benchmark on SDBI and on ours (ARGS adds flags)
	PYTHONPATH=$(abspath $(PYLIB)) SHOAL=$(abspath $(BIN)) $(PYTHON) bench/sessions/bench.py --calls $(if $(SDBI),--sdbi $(SDBI)) $(ARGS)

bench-python: build $(PEERS)/.done $(TRITON)/.done ## Python models: the round trip to a worker; beside mosec, LitServe, uvicorn and Triton (ARGS adds flags)
	$(GO) run ./bench/python $(ARGS)

bench-pipeline: runtime ## ensembles and BLS: what a step and a call cost, beside a tritonserver that you name (ARGS=--tritonserver PATH --backends DIR)
	$(GO) run ./bench/pipeline --python $(PYTHON) $(ARGS)

bench-overload: runtime ## twice the requests that the server can serve (ARGS adds flags)
	$(GO) run ./bench/overload $(ARGS)

perf-criteria: build ## check the accuracy of shoal perf, P1 to P16; a quarter of an hour on a quiet machine (ARGS adds flags)
	$(GO) run ./bench/criteria $(ARGS)

profile: runtime $(PYLIB)/.done ## measure the profile for the compiler again: cmd/shoal/default.pgo
	mkdir -p build/bench
	$(GO) test -run '^$$' -bench 'Batcher' -benchtime 3s -cpuprofile build/bench/batcher.pprof -o build/bench/sched.test ./internal/sched
	PYTHONPATH=$(abspath $(PYLIB)) $(GO) run ./bench/profile --python $(PYTHON) $(ARGS) build/bench/batcher.pprof

bench-go: runtime ## Go benchmarks beside the code
	$(GO) test -run '^$$' -bench . -benchmem ./...

clean: ## remove build/
	rm -rf build
