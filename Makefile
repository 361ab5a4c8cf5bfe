# Everything one does with this repository. `make` alone lists it.

GO      ?= go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X main.version=$(VERSION)
EMBED   := runtime/executor/embed
# Programs of others that check this one, each pinned and built into the cache.
TOOLS    := .cache/bin
DEADCODE := $(TOOLS)/deadcode@v0.52.0/deadcode
LINT     := $(TOOLS)/golangci-lint@v2.15.0/golangci-lint
RELEASER := $(TOOLS)/goreleaser@v2.15.0/goreleaser
# Sources decide whether the program is built anew; go's own cache does the rest.
SOURCES := $(shell git ls-files '*.go' 2>/dev/null) go.mod go.sum

export CGO_ENABLED = 0

.PHONY: help build executor demo setup test test-long scenarios real-tasks browser-night bench check fmt tidy dead lint release release-snapshot clean

help:
	@echo "make build   bin/evalrun, static"
	@echo "make demo    build, run the embedded tasks with four agents, compare two of them"
	@echo "make test    the tests of all packages, a sample of the long ones, setting up what they need"
	@echo "make test-long   the long tests whole, the race detector, an ordinary user, kills at random moments, damaged run folders"
	@echo "make scenarios   every attack on graders, and honest work, in benchmarks/harbor/testdata/integrity"
	@echo "make real-tasks   public tasks by oracle and nop, then a run of them killed and resumed (scripts/real-tasks)"
	@echo "make browser-night   MiniWoB++ with two arms, killed and resumed (scripts/browser-night)"
	@echo "make check   formatting, go.mod, dead code, vet, import table, tests with -race: what a change has to pass"
	@echo "make lint    golangci-lint, built into .cache"
	@echo "make bench   measure, and write docs/performance.md"
	@echo "make release-snapshot   the archives of a release, in build/release"
	@echo "make clean   remove what these have made"

build: bin/evalrun

bin/evalrun: $(SOURCES) executor
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/evalrun

# The program inside sandboxes is embedded for both architectures.
executor: $(EMBED)/evalrun-init-amd64
$(EMBED)/evalrun-init-amd64: $(shell git ls-files 'runtime/executor/*.go' 'runtime/sandbox/*.go' 'internal/*.go' go.mod 2>/dev/null)
	sh $(EMBED)/build.sh

demo: build
	scripts/demo

setup: executor
	scripts/setup-test

# CI runs both.
test: setup build
	scripts/test

test-long: setup build
	scripts/test long

scenarios: setup
	EVALRUN_TEST_DOCKER=1 EVALRUN_TEST_THOROUGH=1 $(GO) test ./benchmarks/harbor -run TestIntegrity -timeout 60m -v
	scripts/engine stop

real-tasks: setup build
	scripts/real-tasks/check
	scripts/real-tasks/killed
	scripts/engine stop

browser-night: setup build
	$(GO) run ./scripts/browser-night -evalrun bin/evalrun

bench: build
	$(GO) run ./scripts/bench -write -evalrun bin/evalrun

check: fmt tidy dead executor
	$(GO) vet ./...
	$(GO) test ./cmd/evalrun -run TestImports -count=1
	CGO_ENABLED=1 $(GO) test -race ./...

fmt:
	@bad=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$bad" ]; then echo "not formatted (gofmt -w):"; echo "$$bad"; exit 1; fi

tidy:
	$(GO) mod tidy -diff

# Functions that no program reaches; scripts/deadcode.keep has the exceptions.
dead: $(DEADCODE) executor
	scripts/deadcode $(DEADCODE)

$(TOOLS)/deadcode@%/deadcode:
	GOBIN=$(abspath $(@D)) $(GO) install golang.org/x/tools/cmd/deadcode@$*

lint: $(LINT) executor
	$(LINT) run

$(TOOLS)/golangci-lint@%/golangci-lint:
	GOBIN=$(abspath $(@D)) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$*

# Archives and checksums for a tag; a snapshot is the same of any commit, in build/release, published nowhere.
release: $(RELEASER)
	VERSION=$(VERSION) $(RELEASER) release --clean

release-snapshot: $(RELEASER)
	VERSION=$(VERSION) $(RELEASER) release --snapshot --clean

$(TOOLS)/goreleaser@%/goreleaser:
	GOBIN=$(abspath $(@D)) $(GO) install github.com/goreleaser/goreleaser/v2@$*

clean:
	rm -rf bin .cache build $(EMBED)/evalrun-init-*
