# Everything here needs Go and nothing else; on Debian the tests install the rest.

SHELL     := bash
.SHELLFLAGS := -eu -o pipefail -c
GO        ?= go
TOOL      := $(GO) tool -modfile=tools.mod
MODULE    := github.com/bourse-dev/bourse
RELEASE   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unreleased)
LDFLAGS   := -s -w -X main.release=$(RELEASE)
FUZZTIME  ?= 10s
TESTFLAGS ?=

# SQLite is translated from C and works in memory of its own, where the race
# detector sees nothing: without it the view's tests take a fifth of the time.
NORACE    := -gcflags=modernc.org/...=-race=false
SOAK      ?= 10m

# Tests of disks and images wait as much as they compute: one package more than there
# are processors keeps those busy. Tests of whole clusters (test/...) run one package at
# a time, since they start dozens of processes that have to answer in time.
PACKAGES  ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 2) + 1)))

.DEFAULT_GOAL := help
.PHONY: help build man package release demo test cgroup2 soak check fmt-check vet cross lint fuzz bench lab fmt clean

help: ## show what there is to make
	@awk 'BEGIN {FS = ":.*## "} /^[a-z][a-z0-9-]*:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/bourse, static, with the agent for virtual machines in it
	@scripts/build-agent
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/bourse ./cmd/bourse

man: build ## write the manual, bin/man/*.1
	bin/bourse man bin/man

package: ## build packages for amd64 and arm64: bin/bourse_VERSION_ARCH.deb, .rpm, .tar.gz and .image.tar
	@mkdir -p bin
	@GO="$(GO)" RELEASE='$(RELEASE)' scripts/package bin deb rpm tar.gz image.tar

release: ## build packages, and lists of the modules that they contain (.cdx.json)
	@mkdir -p bin
	@GO="$(GO)" RELEASE='$(RELEASE)' scripts/package bin deb rpm tar.gz image.tar cdx.json

demo: build ## run the main job from beginning to end, with a worker killed in between
	scripts/demo bin/bourse

test: ## run the tests, with race detector and shuffled (make check vets them)
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

cgroup2: ## run all tests of processes and groups under a kernel with cgroup v2
	@scripts/need-host
	@scripts/need-kernel
	$(GO) test -count=1 -timeout 40m -v ./test/cgroup2 -all

soak: ## kill servers for SOAK (10m) under load, and account for every machine, then for every request to proxies, then for every deploy
	$(GO) test -run '^TestStorm$$' -timeout 30m ./test/ -storm $(SOAK) -v
	$(GO) test -run '^TestSoak$$' -timeout 30m ./test/proxy -soak $(SOAK) -v
	$(GO) test -run '^TestDrainUnderLoad$$' ./test/ -drained 50 -v
	$(GO) test -run '^TestDeployStorm$$' -timeout 30m ./test/deploy -storm $(SOAK) -v
	$(GO) test -run '^Test(KilledClients|Files)$$' -timeout 30m ./test/deploy -all -v

check: fmt-check vet cross lint ## format, vet, cross compile, golangci-lint

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

bench: build ## measure, and write bench/out.json
	@scripts/need-host
	$(GO) run ./bench -out bench/out.json

lab: ## run the placement lab (about 10 minutes), and update docs/placement.md
	$(GO) run ./sim/lab -docs docs

fmt: ## format the code
	$(TOOL) gofumpt -w .
	$(TOOL) goimports -w -local $(MODULE) .

clean: ## remove what was built
	rm -rf bin bench/out.json driver/vm/guest/*/agent*
	$(GO) clean -testcache
