# make demo           train a small network through HDMLP and through torch's loader, and compare
# make quick          from time to time: linters and the fast tests (4 minutes on 2 processors,
#                     with warm Go caches)
# make test           before a change is proposed: linters, Go tests with the race detector, Python
#                     tests with the torch that `python` has, or else Debian's, without those that
#                     are marked ci
# make ci             what every change must pass: docs and test, Go tests without cgo, and all
#                     Python tests with the newest torch, and those that depend on its version with
#                     Debian's as well (25 minutes on 2 processors); .ci/run runs this in a clean
#                     clone
# make bench          HDMLP beside other loaders (QUICK=1, SCENARIO=a,c or frameworks, ROUNDS=3,
#                     SAVE=1, ONLY=part of contenders' names); SCENARIO=records: tar shards beside
#                     webdataset and mosaicml-streaming, files by lists, pairs, volumes;
#                     SCENARIO=hf: Hugging Face's datasets; objects: a slow object store; lmdb:
#                     beside py-lmdb, and fio where it is installed; lmdbio: LMDBIO's figures,
#                     drawn; recipes: augmentation policies beside torchvision's v2 on tensors
#                     and DALI; grid, share, streams, before: with jobs that share, an earlier
#                     commit (BENCH_BEFORE), fixed settings (grid/disk/40: these cells); analyze:
#                     hdmlp analyze's predictions beside runs; threads: worker processes x
#                     threads; search: a search with Ray Tune; pagecache, as root: the kernel's
#                     misses beside those of minio
# make evaluation     as root: the papers' measurements, repeated on this machine, beside what they
#                     print: at most an hour, QUICK=1 ten minutes (MINUTES=90: another limit); into
#                     build/evaluation, SAVE=1 into docs (ONLY=hymenoptera,sharing: these rows)
# make fuzz           every fuzz target in turn (MINUTES=1 each, NAME=part of a target's or
#                     package's name)
# make fuzz-corpus    copies a selection of interesting inputs from Go's cache to testdata/fuzz
# make asan           the codecs' tests and fuzz inputs, with sanitizers in their C code and in the
#                     libraries that they call
# make faults         as root: injects faults from outside and judges the results (ONLY=word,
#                     PRODUCT=tree)
# make soak           as root: combines faults at random on several nodes, and judges what ranks are
#                     given (MINUTES=10, SEED=1: the schedule; ROUND=3 ROUNDS=1: which rounds of it;
#                     GROUPS=1: jobs that share what they prepare, on one node, come and go)
# make mutants        plants defects of one line and reports which no test finds (N=150 of them,
#                     SEED=1, ROOM=cache,stage; ONLY=text in their names; SUITES=internal/node:
#                     whose tests have to find them, FLAGS for these; of the simulation
#                     SCRIPTS=60 of SEEDS=1000 that reach a defect; NORACE=1: without the race
#                     detector; OWN=1: those of the rooms alone, which is much faster); continues
#                     where it was interrupted
# make scale          what the control messages of 4 to 1,024 nodes cost, in virtual time, into
#                     docs/scale.json and docs/scale.png (SIZES=4,16: other numbers of nodes, which
#                     is only printed without SAVE=1; 1,024 take 10 GB of memory and about 10
#                     minutes of 2 processors)
# make conformance    PIL's operations on 1,000 images with 200 arguments each, beside the Pillows
#                     of both environments (IMAGES, ARGUMENTS: others); about half an hour
# make test-newest    all Python tests with the newest torch, and those with Lightning, accelerate,
#                     transformers, timm, torchdata, Ray and Optuna, from PyPI (about 6 GB, which
#                     scripts/environment keeps outside of the clone)
# make test-oldest    Python tests that depend on torch's version, with Debian's
# make figures        CoorDL's figures from the simulator beside the paper's numbers, into
#                     docs/COORDL.md (2 minutes of processor time; ONLY='figure 9a': this one)
# make tables         the thesis's tables 5.1 to 5.6 beside the simulator's results
# make docs           the docs site, into build/docs: pages, API reference, commands, configuration
# make build          the static binary, into the Python package
# make wheel          the wheel that carries it, into dist/ (ARCH=aarch64: cross-built); installs
#                     nothing that only tests need
# make sdist          the source distribution, into dist/
# make test-aarch64   as root: the conformance suites for 64-bit ARM, in a Debian root of that
#                     architecture, under qemu's emulation
# make train-aarch64  as root: installs the wheel for 64-bit ARM in that root, and trains
#
# Each target first installs what it needs (make setup installs everything): Debian packages, as
# root; Go tools, into build/bin; Python tools, into .venv. Stamp files in build/ record what has
# been installed.

GO      ?= go
PYTHON  := /usr/bin/python3
VENV    := .venv
BIN     := build/bin

# The machine that a wheel is for: x86_64 or aarch64.
MACHINE := $(shell uname -m)
ARCH    ?= $(MACHINE)

# Pinned: a new release would change what passes the linters.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT     := mvdan.cc/gofumpt@v0.9.2
OPENCV      := opencv-python-headless==4.8.1.78

# The files that gofumpt checks: all but generated ones.
GO_FILES = $(shell find bench cmd internal scripts -name "*.go" -not -name "*.pb.go" \
	-not -name "*.connect.go")

# Packages whose tests wait for the network or for processes, or compute for long: quick omits them.
comma := ,
space := $(subst ,, )
SLOW_INTERNAL := peers/cluster/agent node/coordinator lab/devcluster source/folder peers/exchange \
	node study/simulate transform transform/codec transform/pixels
SLOW := cmd/hdmlp|bench/.*|internal/($(subst $(space),|,$(strip $(SLOW_INTERNAL))))

# What must hold on every architecture: sources, storage classes, transforms, layouts in memory.
CONFORMANCE := ./internal/source/... ./internal/lib/digest/... ./internal/store/... \
	./internal/engine/staging/... ./internal/peers/exchange/wire \
	./internal/transform ./internal/transform/codec ./internal/transform/pixels

PYTEST := -m pytest -q --dist worksteal -rfE
PARTS  := MAKE="$(MAKE)" scripts/parts
GOTEST := GO="$(GO)" $(PYTHON) scripts/gotest.py -vet=off $(TEST_FLAGS)

# Without paths of the clone in them, packages that one part has compiled serve others, and other
# clones.
export GOFLAGS := -trimpath $(filter-out -trimpath,$(GOFLAGS))
export PYTHONPATH := $(CURDIR)/python
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: all build build-aarch64 throttle exchange objects quick test test-go test-race \
	test-sequential test-allocations test-nocgo bytecode test-python test-newest test-oldest ci lint \
	conformance fuzz fuzz-corpus asan wheel sdist test-aarch64 train-aarch64 demo bench evaluation \
	faults soak \
	mutants scale docs figures tables setup setup-test setup-ci modules clean
.DELETE_ON_ERROR:

all: build

# Always runs go build, which tracks what has changed. C libraries are linked statically, so the
# binary runs on any Linux.
build: | build/go.stamp
	GO="$(GO)" scripts/build python/hdmlp/bin/hdmlp

build-aarch64: | build/go.stamp build/aarch64.stamp
	GO="$(GO)" scripts/aarch64 scripts/build build/aarch64/hdmlp

throttle exchange objects: %: | build/go.stamp
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/$@ ./bench/$@

quick: lint build $(VENV)/stamp
	$(GO) test -vet=off $$($(GO) list ./... | grep -vE '/($(SLOW))$$')
	$(VENV)/bin/python $(PYTEST) -n 2 -m "not slow" python/tests bench/tests

# One part after the other, each with as many workers as pay: beside each other, tests that wait
# would break each other's bounds on time. What only computes takes the time in which others wait
# (A+B: B beside A, at a low priority). A part that fails does not keep the others from
# running.
GO_PARTS := test-race+test-sequential test-allocations
test:
	$(PARTS) setup-test test-python+lint $(GO_PARTS)

# Runs all tests, whatever other clones have tested, and checks conversions of pointers also in
# tests that run without the race detector, which does so by itself: that compiles them once more.
ci: export TEST_FLAGS := -count=1
ci: export POINTERS := -gcflags=-d=checkptr
ci:
	$(PARTS) setup-test setup-ci docs test-newest+lint \
		test-race+test-sequential+test-nocgo test-allocations test-oldest

# go vet sees the files with the tag, and those that only builds without it have; staticcheck sees
# all without it.
lint: $(BIN)/staticcheck $(BIN)/gofumpt $(VENV)/stamp build/test.stamp
	$(VENV)/bin/ruff format --quiet --check .
	$(VENV)/bin/ruff check --quiet .
	MYPYPATH=internal/study/instrument/hook $(VENV)/bin/mypy -p hdmlp -p hdmlp_analyze -p hdmlp_learn
	@unformatted="$$($(BIN)/gofumpt -l $(GO_FILES))"; if [ -n "$$unformatted" ]; then \
		echo "not formatted (run $(BIN)/gofumpt -w on them):"; echo "$$unformatted"; exit 1; fi
	$(GO) vet -tags invariants ./...
	$(GO) vet $$(grep -rl --exclude-dir=build --include="*.go" "^//go:build.*!invariants" . | \
		xargs dirname | sort -u)
	$(BIN)/staticcheck ./...

test-go:
	$(PARTS) test-race+test-sequential+test-nocgo test-allocations

# The race detector finds nothing where no two goroutines run, and makes tests many times slower.
# Of cmd/hdmlp that is where commands only compute, for long; its other tests of the same commands
# compute less. Of the pool it is where gates find limits in virtual time, by hundreds of thousands
# of reads; its other tests of gates have as many goroutines and fewer reads. Of node it is where
# runs of many policies, and of links that recover, are compared with predictions; its other tests
# run the same jobs.
COMPUTING := ^Test(AnalyzeAlexNet|SimulateWritesPlots|AnAnalysisIsDrawnAgain|$\
	StatsDrawsASavedReport|TheSimulatorTakesTheEnvironment|$\
	GatesTogetherTakeNoMoreThanTheSourceNeeds|GatesToDifferentSourcesFindTheirOwnLimits|$\
	NodesReadWhatIsPredicted|RecoveredLinkIsUsed)$$
test-race: build/test.stamp
	packages=$$($(GO) run ./scripts/sequential -raced) && \
		$(GOTEST) -race -tags invariants -p 4 -timeout 20m -skip '$(COMPUTING)' $$packages

test-sequential: build/test.stamp
	packages=$$($(GO) run ./scripts/sequential) && \
		$(GOTEST) -tags invariants $(POINTERS) -timeout 20m $$packages
	$(GOTEST) -tags invariants $(POINTERS) -run '$(COMPUTING)' \
		./cmd/hdmlp ./internal/engine/cache/pool ./internal/node

test-allocations: build/test.stamp
	$(GOTEST) -run Allocations ./internal/peers/exchange/...

test-nocgo: build/test.stamp
	CGO_ENABLED=0 $(GOTEST) ./internal/transform/...

# As many workers as pay on 2 processors: tests wait for processes and timeouts. With a thread for
# each processor in each of them, torch would spend most of its time waiting for these threads.
WORKERS := 4
quick test-python test-newest test-oldest: export OMP_NUM_THREADS := 1

# Hundreds of processes import these.
bytecode:
	$(PYTHON) -m compileall -q python bench

test-python: build $(VENV)/stamp throttle exchange objects bytecode
	scripts/torch build/python $(VENV)
	build/python/bin/python $(PYTEST) -n $(WORKERS) -m "not ci" python/tests bench/tests

test-newest: build throttle exchange objects bytecode build/frameworks/stamp
	@build/frameworks/bin/python -c 'import torch; print("newest torch:", torch.__version__)'
	build/frameworks/bin/python $(PYTEST) -n $(WORKERS) python/tests bench/tests python/frameworks

# What depends on the version of torch, torchvision or Pillow: the loader that is replaced, its
# order and seeds, workers, ranks and launchers, collation, transforms and their random numbers, and
# which files are images, with what they say of themselves. The rest is the daemon's and the
# samples', which torch does not see.
OLDEST := $(wildcard python/tests/test_dropin*.py python/tests/test_samplers*.py) \
	$(patsubst %,python/tests/test_%.py, augmentations batches damage datasets epoch_ends exit \
	foreign left metadata moved offload offload_faults offload_rest on_error originals pixel_limit \
	ragged random_stream ranks seeds tail tensor_types timm torch torch_modes torch_workers train \
	transforms transforms_parts view_wrappers views vision worker_info worker_seeds)

test-oldest: build throttle exchange objects bytecode $(VENV)/stamp
	@$(VENV)/bin/python -c 'import torch; print("oldest torch:", torch.__version__)'
	$(VENV)/bin/python $(PYTEST) -n $(WORKERS) $(OLDEST)

conformance: build/test.stamp build/frameworks/stamp
	HDMLP_CONFORMANCE=$(or $(IMAGES),1000)x$(or $(ARGUMENTS),200) $(GO) test -count 1 -v \
		-timeout 0 -run '^TestOperationsAsPIL$$' ./internal/transform/pixels

fuzz: build/test.stamp
	GO="$(GO)" scripts/fuzz $(or $(MINUTES),1) $(NAME)

fuzz-corpus: | build/go.stamp
	GO="$(GO)" scripts/fuzz corpus $(NAME)

asan: build/test.stamp build/asan.stamp
	GO="$(GO)" scripts/asan

ifeq ($(ARCH),$(MACHINE))
wheel: build
WHEEL_BINARY := python/hdmlp/bin/hdmlp
else
wheel: build-$(ARCH)
WHEEL_BINARY := build/$(ARCH)/hdmlp
endif
wheel: build/wheel/stamp
	rm -f dist/*_$(ARCH).whl
	GO="$(GO)" HDMLP_WHEEL_BINARY=$(WHEEL_BINARY) \
		build/wheel/bin/python -m build --wheel --no-isolation --outdir dist .
	@ls -l dist/*_$(ARCH).whl

sdist: build/wheel/stamp
	rm -f dist/*.tar.gz
	build/wheel/bin/python -m build --sdist --no-isolation --outdir dist .
	@ls -l dist/*.tar.gz

test-aarch64: | build/go.stamp build/aarch64.stamp
	scripts/aarch64-root true
	scripts/aarch64 $(GO) test -vet=off -timeout 60m -tags netgo,osusergo \
		-ldflags "-linkmode external -extldflags -static" \
		-exec $(CURDIR)/scripts/aarch64-root $(CONFORMANCE)

train-aarch64: | build/aarch64.stamp
	$(MAKE) wheel ARCH=aarch64
	scripts/aarch64-root python3 -m venv --clear --system-site-packages /opt/hdmlp
	scripts/aarch64-root /opt/hdmlp/bin/pip install --no-index $(CURDIR)/dist/*_aarch64.whl
	scripts/aarch64-root /opt/hdmlp/bin/hdmlp --version
	scripts/aarch64-root /opt/hdmlp/bin/python scripts/aarch64_train.py

# Go's downloads are 60 lines: they go to a log, so that the demo's own output is seen.
demo: build/go.stamp build/demo.stamp
	@echo "building the daemon: some minutes the first time (log: build/demo.log)"
	@$(MAKE) build throttle >build/demo.log 2>&1 || { \
		echo "the end of build/demo.log:"; tail -n 30 build/demo.log; exit 1; } >&2
	@$(PYTHON) bench/demo.py

# SCENARIO=controllers: what the constants and mechanisms of the choice of tiers are for, in virtual
# time; the others run jobs. Those with the newest torch, which is large, need its environment.
NEWEST := o p q forms forms/peers frameworks hf items lmdb lmdb/% lmdbio objects records \
	records/% recipes recipes/% search search/% threads threads/%
PEERS := forms forms/peers lmdb lmdb/% lmdbio objects records records/shards recipes recipes/%
ASKED := $(subst $(comma), ,$(SCENARIO))
bench: $(if $(if $(SCENARIO),$(filter $(NEWEST),$(ASKED)),all),build/frameworks/stamp)
bench: $(if $(filter $(PEERS),$(ASKED)),build/peers/stamp)
bench: build throttle exchange objects build/bench.stamp build/opencv/stamp
	$(if $(filter controllers,$(SCENARIO)),,$(PYTHON) bench/run.py $(if $(QUICK),--quick) \
		$(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(ONLY),--only $(ONLY)) $(if $(SAVE),--save))
	$(if $(filter-out controllers,$(SCENARIO)),,$(GO) run ./bench/controllers)

evaluation: build throttle build/bench.stamp build/frameworks/stamp build/peers/stamp \
		build/tensorflow/stamp
	exec env PYTHONPATH=$(CURDIR)/bench:$(CURDIR)/python $(PYTHON) -m evaluation \
		$(if $(QUICK),--quick) $(addprefix --only ,$(ONLY)) $(addprefix --minutes ,$(MINUTES)) \
		--out $(if $(SAVE),docs,build/evaluation)

faults: build throttle build/bench.stamp $(VENV)/stamp
	$(VENV)/bin/python bench/faults/run.py --json build/faults.json $(addprefix --only ,$(ONLY)) \
		$(if $(PRODUCT),--product $(PRODUCT))
	$(if $(ONLY)$(PRODUCT),,$(PYTHON) bench/faults/report.py build/faults.json docs/RELIABILITY.md)

# exec: make ends what it has started with SIGTERM, which a shell would not pass on.
soak: build throttle $(VENV)/stamp
	exec env PYTHONPATH=$(CURDIR)/bench:$(CURDIR)/python $(VENV)/bin/python -m soak \
		--minutes $(or $(MINUTES),10) $(addprefix --seed ,$(SEED)) \
		$(addprefix --round ,$(ROUND)) $(addprefix --rounds ,$(ROUNDS)) $(if $(GROUPS),--groups)

mutants: build/test.stamp
	mkdir -p build/mutants && $(GO) build -o build/mutants/mutants ./bench/mutants
	build/mutants/mutants $(addprefix -n ,$(N)) $(addprefix -seed ,$(SEED)) \
		$(addprefix -room ,$(ROOM)) $(addprefix -suites ,$(SUITES)) $(if $(OWN),-own) \
		$(addprefix -seeds ,$(SEEDS)) $(addprefix -scripts ,$(SCRIPTS)) \
		$(if $(ONLY),-only '$(ONLY)') $(if $(FLAGS),-flags '$(FLAGS)') $(if $(NORACE),-norace)

# Other sizes are only printed: those in docs/ have up to 1,024 nodes.
SAVES = $(if $(SIZES),$(SAVE),1)
scale: build/bench.stamp | build/go.stamp
	$(GO) test ./internal/lab/clustersim/scale -count 1 -timeout 0 -v -run '^TestScale$$' \
		-sizes '$(or $(SIZES),4$(comma)16$(comma)64$(comma)256$(comma)1024)' \
		$(if $(SAVES),-out $(CURDIR)/docs/scale.json)
	$(if $(SAVES),$(PYTHON) bench/scale_chart.py docs/scale.json docs/scale.png)

# Warnings are errors: broken links, pages that docs/index.md does not list, malformed docstrings.
docs: build build/docs-env/stamp
	rm -rf build/docs
	$(PYTHON) docs/site/pages.py python/hdmlp/bin/hdmlp build/docs-source
	build/docs-env/bin/python -m sphinx --quiet --fail-on-warning --keep-going \
		-c docs/site -d build/docs-trees build/docs-source build/docs

figures: build build/bench.stamp
	$(PYTHON) bench/coordl/redraw.py python/hdmlp/bin/hdmlp docs $(if $(ONLY),'$(ONLY)')

tables: | build/go.stamp
	HDMLP_FULL_TABLES=1 $(GO) test ./internal/study/simulate -count 1 -run '^TestFullTables$$' -v

setup: setup-test build/demo.stamp build/bench.stamp

# Downloads wait for the network, so they are made beside each other.
setup-test:
	@$(MAKE) --no-print-directory -j 4 $(VENV)/stamp $(BIN)/staticcheck $(BIN)/gofumpt modules

modules: | build/go.stamp
	@$(GO) list -test -deps ./... >/dev/null

setup-ci: build/docs-env/stamp build/frameworks/stamp

clean:
	rm -rf build dist $(VENV) .pytest_cache python/hdmlp/bin

# What the targets need.

PIP_INSTALL := pip install --quiet --disable-pip-version-check

STAMPS := $(patsubst %,build/%.stamp,go wheel aarch64 test demo bench asan)
$(STAMPS): build/%.stamp: scripts/setup
	GO="$(GO)" scripts/setup $*
	@mkdir -p build && touch $@

build/test.stamp: | build/go.stamp # one apt-get at a time

build/wheel/stamp: requirements-wheel.txt | build/wheel.stamp
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m $(PIP_INSTALL) -r requirements-wheel.txt
	@touch $@

$(VENV)/stamp: requirements-dev.txt requirements-test.txt requirements-wheel.txt build/test.stamp
	$(PYTHON) -m venv --system-site-packages $(VENV)
	$(VENV)/bin/python -m $(PIP_INSTALL) -r requirements-dev.txt
	@touch $@

# A link to the environment that is kept for these requirements.
build/frameworks/stamp: requirements-frameworks.txt requirements-test.txt requirements-wheel.txt \
		build/test.stamp
	scripts/environment build/frameworks requirements-frameworks.txt
	@touch $@

# Other loaders, on top of build/frameworks. They are kept apart from the environments of tests, of
# which scripts/environment keeps the two used last. If they cannot be installed, their rounds fail.
build/peers/stamp: requirements-peers.txt build/frameworks/stamp
	-HDMLP_ENVIRONMENTS=$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hdmlp/peers scripts/environment \
		build/peers requirements-peers.txt $$(readlink -f build/frameworks)/bin/python
	@mkdir -p build/peers && touch $@

# TensorFlow, in an environment of its own. If it cannot be installed, its rounds fail.
build/tensorflow/stamp: requirements-tensorflow.txt build/bench.stamp
	-HDMLP_ENVIRONMENTS=$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hdmlp/tensorflow \
		scripts/environment build/tensorflow requirements-tensorflow.txt
	@mkdir -p build/tensorflow && touch $@

build/docs-env/stamp: requirements-docs.txt build/test.stamp
	$(PYTHON) -m venv --system-site-packages build/docs-env
	build/docs-env/bin/python -m $(PIP_INSTALL) --ignore-installed -r requirements-docs.txt
	@touch $@

# A peer in the benchmark. If it cannot be installed, its rounds fail and the others are measured.
build/opencv/stamp: Makefile $(VENV)/stamp
	rm -rf build/opencv
	-$(VENV)/bin/python -m pip install -q --no-deps --target build/opencv $(OPENCV)
	mkdir -p build/opencv && touch $@

$(BIN)/staticcheck $(BIN)/gofumpt: Makefile | build/go.stamp
	GOBIN=$(CURDIR)/$(BIN) $(GO) install $(if $(filter %gofumpt,$@),$(GOFUMPT),$(STATICCHECK))
	@touch $@
