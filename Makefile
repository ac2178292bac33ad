# All targets need only Go. On Debian, the tests install the other programs that they need.

SHELL     := bash
.SHELLFLAGS := -eu -o pipefail -c
GO        ?= go
TOOL      := $(GO) tool -modfile=tools.mod
MODULE    := github.com/bourse-dev/bourse
RELEASE   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unreleased)
LDFLAGS   := -s -w -X main.release=$(RELEASE)
FUZZTIME  ?= 10s
TESTFLAGS ?=

# SQLite is translated from C and manages its own memory, in which the race detector cannot find
# anything. If SQLite is built without the detector, the view's tests take a fifth of the time.
NORACE    := -gcflags=modernc.org/...=-race=false
SOAK      ?= 10m

# Tests of disks and images wait for half of their time, so testing one package more than there are
# processors keeps the processors busy. Tests of whole clusters (test/...) run one package at a
# time, because they start dozens of processes that have to answer in time.
PACKAGES  ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 2) + 1)))

.DEFAULT_GOAL := help
.PHONY: help build man package release demo test cgroup2 soak check fmt-check vet cross lint fuzz bench lab fmt clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z][a-z0-9-]*:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/bourse, a static binary that contains the agent for virtual machines
	@scripts/build-agent
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/bourse ./cmd/bourse

man: build ## write the manual pages, bin/man/*.1
	bin/bourse man bin/man

package: ## build packages for amd64 and arm64: bin/bourse_VERSION_ARCH.deb, .rpm, .tar.gz and .image.tar
	@mkdir -p bin
	@GO="$(GO)" RELEASE='$(RELEASE)' scripts/package bin deb rpm tar.gz image.tar

release: ## build packages, and SBOMs that list the modules in them (.cdx.json)
	@mkdir -p bin
	@GO="$(GO)" RELEASE='$(RELEASE)' scripts/package bin deb rpm tar.gz image.tar cdx.json

demo: build ## demonstrate an order, a refusal, a killed worker daemon, and a request to a stopped machine
	scripts/demo bin/bourse

test: ## run the tests in random order, with the race detector (make check vets them)
	@scripts/need-host
	@scripts/need-kernel
	@scripts/need-debian
	@if scripts/need-cc; then race='-race $(NORACE)'; export CGO_ENABLED=1; \
	else race=; echo "no C compiler, and none could be installed: the tests run without the race detector" >&2; fi; \
	all=$$($(GO) list ./...); \
	run() { $(GO) test $$race -vet=off -shuffle=on -timeout 20m $(TESTFLAGS) "$$@"; }; \
	failed=0; \
	run -p $(PACKAGES) $$(grep -v '^$(MODULE)/test\(/\|$$\)' <<<"$$all") || failed=1; \
	run -p 1 ./test/... || failed=1; \
	exit $$failed

cgroup2: ## run all tests of processes and cgroups under a kernel with cgroup v2
	@scripts/need-host
	@scripts/need-kernel
	$(GO) test -count=1 -timeout 40m -v ./test/cgroup2 -all

soak: ## kill servers under load for SOAK (10m) in each test, and check that no machine, proxied request or deploy is lost
	$(GO) test -run '^TestStorm$$' -timeout 30m ./test/ -storm $(SOAK) -v
	$(GO) test -run '^TestSoak$$' -timeout 30m ./test/proxy -soak $(SOAK) -v
	$(GO) test -run '^TestDrainUnderLoad$$' ./test/ -drained 50 -v
	$(GO) test -run '^TestDeployStorm$$' -timeout 30m ./test/deploy -storm $(SOAK) -v
	$(GO) test -run '^Test(KilledClients|Files)$$' -timeout 30m ./test/deploy -all -v

check: fmt-check vet cross lint ## check the format, vet, cross-compile, and lint

fmt-check:
	@out=$$($(TOOL) gofumpt -l . && $(TOOL) goimports -l -local $(MODULE) .); if [ -n "$$out" ]; then echo "not formatted (make fmt):"; echo "$$out"; exit 1; fi

vet:
	$(GO) vet ./...

cross:
	GOOS=linux GOARCH=arm64 $(GO) build ./...
	GOOS=darwin GOARCH=arm64 $(GO) build ./...

lint: # staticcheck is one of its linters, with all checks
	$(TOOL) golangci-lint run ./...

fuzz: ## run every fuzz test for FUZZTIME (10s)
	@GO="$(GO)" FUZZTIME=$(FUZZTIME) scripts/fuzz

bench: build ## run the benchmarks, and write bench/out.json
	@scripts/need-host
	$(GO) run ./bench -out bench/out.json

lab: ## run the placement lab (about 10 minutes), and update docs/placement.md
	$(GO) run ./sim/lab -docs docs

fmt: ## format the code
	$(TOOL) gofumpt -w .
	$(TOOL) goimports -w -local $(MODULE) .

clean: ## remove build outputs and cached test results
	rm -rf bin bench/out.json driver/vm/guest/*/agent*
	$(GO) clean -testcache
