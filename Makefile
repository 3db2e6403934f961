# make demo    the main job: train a small network through HDMLP and through torch's loader
# make quick   after each edit: linters, and the tests that are fast (under a minute on 2 processors, once Go's caches are warm)
# make test    everything: linters, Go tests with the race detector, Python tests (12 minutes on 2 processors)
# make bench   HDMLP and other loaders side by side (QUICK=1, SCENARIO=a,c or frameworks, ROUNDS=3, SAVE=1)
# make fuzz    every fuzz target in turn (MINUTES=1 each, NAME=part of a target's or package's name)
# make fuzz-corpus  a choice of what these runs found interesting, from Go's cache into testdata/fuzz
# make asan    the codecs' tests and fuzz inputs, with sanitizers in their C code and in the libraries that it calls
# make faults  do harm to HDMLP from outside, as root, and judge what came of it (ONLY=word, PRODUCT=tree)
# make frameworks  the newest torch, and Lightning, accelerate, transformers, timm, torchdata with it, from PyPI (about 6 GB, kept in build/frameworks)
# make tables  the thesis's tables 5.1 to 5.6 beside what the simulator's profile thesis makes of them
# make build   the static binary, into the Python package
# make wheel   the wheel that carries it, into dist/
#
# Each target first sets up what it needs (make setup does all of it): Debian packages
# as root, Go tools into build/bin, Python tools into .venv. What was done is
# remembered in build/.

GO      ?= go
PYTHON  := /usr/bin/python3
VENV    := .venv
BIN     := build/bin
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' python/hdmlp/_version.py)

# Exactly these, or a new release decides what our code looks like.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT     := mvdan.cc/gofumpt@v0.9.2
OPENCV      := opencv-python-headless==4.8.1.78

# What gofumpt looks at: all that nobody generates.
GO_FILES = $(shell find bench cmd internal scripts -name "*.go" -not -name "*.pb.go" -not -name "*.connect.go")

# Rooms whose tests compute much, and in which nothing starts a goroutine (house_test.go looks): the race detector makes
# them many times slower, and can find nothing in them that it does not find in the tests of the rooms above.
SEQUENTIAL := ./internal/simulate ./internal/simulate/render/page ./internal/transform/codec ./internal/transform/pixels
# The rooms whose tests wait for the network, for other processes or for much computing, which quick leaves out.
SLOW := cmd/hdmlp|bench/.*|internal/(cluster|coordinator|devcluster|dataset/folder|exchange|node|simulate|transform|transform/codec|transform/pixels)

PYTEST := $(VENV)/bin/python -m pytest -q --dist worksteal

export PYTHONPATH := $(CURDIR)/python
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: all build throttle exchange quick test test-go test-python lint fuzz fuzz-corpus asan wheel demo bench faults frameworks tables setup clean
.DELETE_ON_ERROR:

all: build

# Always asks the Go tool, which knows best whether anything changed. Static, C libraries included: it runs on any Linux.
build: | build/go.stamp
	CGO_ENABLED=1 $(GO) build -tags netgo,osusergo -trimpath \
		-ldflags "-s -w -linkmode external -extldflags -static -X main.version=$(VERSION)" \
		-o python/hdmlp/bin/hdmlp ./cmd/hdmlp

throttle exchange: %: | build/go.stamp
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/$@ ./bench/$@

quick: lint build $(VENV)/stamp
	$(GO) test -vet=off $$($(GO) list ./... | grep -vE '/($(SLOW))$$')
	$(PYTEST) -n 2 -m "not slow" python/tests bench/tests

# Go's tests and Python's wait much, for timeouts and for processes to start, so that both run at the same time.
test: lint
	$(MAKE) --keep-going --jobs=2 --output-sync=line test-go test-python

lint: $(BIN)/staticcheck $(BIN)/gofumpt $(VENV)/stamp build/test.stamp
	$(VENV)/bin/ruff format --quiet --check .
	$(VENV)/bin/ruff check --quiet .
	$(VENV)/bin/mypy
	@unformatted="$$($(BIN)/gofumpt -l $(GO_FILES))"; if [ -n "$$unformatted" ]; then \
		echo "not formatted (run $(BIN)/gofumpt -w on them):"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags invariants ./...
	$(BIN)/staticcheck ./...

test-go: build/test.stamp
	$(GO) test -vet=off -race -tags invariants -p 4 -timeout 20m \
		$(filter-out $(shell $(GO) list $(SEQUENTIAL)),$(shell $(GO) list ./...))
	$(GO) test -vet=off -gcflags=-d=checkptr $(SEQUENTIAL)
	$(GO) test -vet=off -run Allocations ./internal/exchange/...
	CGO_ENABLED=0 $(GO) test -vet=off ./internal/transform/...

test-python: build $(VENV)/stamp throttle exchange
	$(PYTEST) -n 3 python/tests bench/tests

fuzz: build/test.stamp
	GO="$(GO)" scripts/fuzz $(or $(MINUTES),1) $(NAME)

fuzz-corpus: | build/go.stamp
	GO="$(GO)" scripts/fuzz corpus $(NAME)

asan: build/test.stamp build/asan.stamp
	GO="$(GO)" scripts/asan

wheel: build $(VENV)/stamp
	rm -rf dist
	$(VENV)/bin/python -m build --wheel --no-isolation --outdir dist $(dir $(firstword $(wildcard pyproject.toml python/pyproject.toml)))
	@ls -l dist/*.whl

demo: build throttle build/demo.stamp
	$(PYTHON) bench/demo.py

comma := ,
# What is measured with the newest torch, which is large: its environment is built if one of these is asked for, or all.
NEWEST := o p q frameworks
bench: $(if $(if $(SCENARIO),$(filter $(NEWEST),$(subst $(comma), ,$(SCENARIO))),all),build/frameworks/stamp)
bench: build throttle exchange build/bench.stamp build/opencv/stamp
	$(PYTHON) bench/run.py $(if $(QUICK),--quick) $(if $(SCENARIO),--scenario $(SCENARIO)) \
		$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SAVE),--save)

faults: build throttle build/bench.stamp $(VENV)/stamp
	$(VENV)/bin/python bench/faults/run.py --json build/faults.json $(addprefix --only ,$(ONLY)) $(if $(PRODUCT),--product $(PRODUCT))
	$(if $(ONLY)$(PRODUCT),,$(PYTHON) bench/faults/report.py build/faults.json docs/RELIABILITY.md)

frameworks: build build/frameworks/stamp
	build/frameworks/bin/python -m pytest -q python/frameworks $(wildcard python/tests/test_dropin*.py) python/tests/test_ranks.py \
		python/tests/test_torch.py python/tests/test_train.py python/tests/test_timm.py python/tests/test_foreign.py \
		python/tests/test_epoch_ends.py python/tests/test_worker_info.py

tables: | build/go.stamp
	HDMLP_FULL_TABLES=1 $(GO) test ./internal/simulate -count 1 -run '^TestFullTables$$' -v

setup: build/test.stamp build/demo.stamp build/bench.stamp $(VENV)/stamp $(BIN)/staticcheck $(BIN)/gofumpt

clean:
	rm -rf build dist $(VENV) .pytest_cache python/hdmlp/bin

# What the targets need.

build/go.stamp build/test.stamp build/demo.stamp build/bench.stamp build/asan.stamp: build/%.stamp: scripts/setup
	GO="$(GO)" scripts/setup $*
	@mkdir -p build && touch $@

$(VENV)/stamp: requirements-dev.txt build/test.stamp
	$(PYTHON) -m venv --system-site-packages $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

build/frameworks/stamp: requirements-frameworks.txt build/test.stamp
	$(PYTHON) -m venv build/frameworks
	build/frameworks/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-frameworks.txt
	@touch $@

# A peer of the benchmark. Without it, as where there is no network, its rounds fail and the others are measured.
build/opencv/stamp: Makefile $(VENV)/stamp
	rm -rf build/opencv
	-$(VENV)/bin/python -m pip install -q --no-deps --target build/opencv $(OPENCV)
	mkdir -p build/opencv && touch $@

$(BIN)/staticcheck $(BIN)/gofumpt: Makefile | build/go.stamp
	GOBIN=$(CURDIR)/$(BIN) $(GO) install $(if $(filter %gofumpt,$@),$(GOFUMPT),$(STATICCHECK))
	@touch $@
