# Run `make` to see what there is. Needs Go, git and bash; what the demo and the tests
# on full clusters need beyond that, they install when root, and say so.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
export CGO_ENABLED := 0
# The same everywhere: what is compiled with other flags is compiled twice.
export GOFLAGS += -trimpath

TOOLS := bin/tools
TEST_FLAGS ?= -shuffle=on -timeout=60m -p 4 -parallel 64
# Those that count lost packets run before the others, alone. Scenarios, which are tests on
# clusters, run after the others. They are listed in hack/scenario.go; no more clusters run at a
# time than there are seats for (LAB_SEATS).
TEST = go run ./hack test -alone ./netfabric/kernel
# What peers send to the network fabric, as pods, as their status, as endpoints and to enrol is
# fuzzed by make test-more and make test-all; make test plays the seeds.
FUZZED := ./netfabric/... ./reflect/forge ./shadow/endpoints ./peering/auth ./shadow/rules
FUZZ = go run ./hack fuzz -packages "$(FUZZED)"
# -count=1 for hack/promql: go keeps a result although files outside of its module, the chart, have changed.
# Without root the tests on real nodes are skipped, loudly; not in CI.
DEPS = hack/deps.sh || [ "$${CI:-}" != true ]

.DEFAULT_GOAL := help
.PHONY: help build test test-more test-all lint vulns verify generate image release demo bench ratchet chaos soak alarm gaps conformance

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build the static binary bin/liqod
	go build -o bin/liqod .

test: ## Run what has to pass: some 10 minutes on 2 cores
	$(DEPS)
	go -C hack/promql test -count=1 .
	$(TEST) -- $(TEST_FLAGS)

test-more: ## Fuzz, and run the scenarios that make test does not: some 45 minutes on 2 cores
	$(DEPS)
	$(FUZZ) -for 2s
	$(TEST) -set more

test-all: ## Run every test, long ones and all cases of the tables, with limits of time: hours on a quiet machine
	$(DEPS)
	$(FUZZ) -in-all 1h
	go -C hack/promql test -count=1 .
	LAB_SEATS=3 LAB_LONG=1 $(TEST) -set all -- $(TEST_FLAGS)
	$(MAKE) --no-print-directory chaos soak alarm gaps ratchet

lint: $(TOOLS)/staticcheck ## Run go vet and staticcheck, and build the commands for macOS
	go vet ./...
	GOOS=darwin go build -o /dev/null .
	$(TOOLS)/staticcheck ./...
	go -C hack/promql vet .

vulns: $(TOOLS)/govulncheck ## Look for known vulnerabilities in the program; needs the network, and warns without
	go run ./hack vulns -tool $(TOOLS)/govulncheck

verify: ## Check formatting, modules, generated files, lint and vulnerabilities
	@echo "gofmt"
	@unformatted=$$(find . -name '*.go' -not -path './bin/*' -not -path './.git/*' -print0 | xargs -0 gofmt -l); \
	  [ -z "$$unformatted" ] || { echo "not formatted; run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	go mod tidy -diff
	go -C hack/tools mod tidy -diff
	go -C hack/promql mod tidy -diff
	@echo "generated files"
	@sum() { find api charts/liqod/templates/crds charts/liqod/values.schema.json docs/values.md docs/rights.md docs/reasons.md reasons -type f -print0 | sort -z | xargs -0 sha256sum; }; \
	  before=$$(sum); hack/generate.sh; after=$$(sum); \
	  [ "$$before" = "$$after" ] || { diff <(echo "$$before") <(echo "$$after") || true; \
	    echo "generated files were stale and have been made anew: review and commit them"; exit 1; }
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory vulns

generate: ## Make deep copies, clients and CRDs anew from the API types, and the pages about the chart
	hack/generate.sh

image: ## Write the container image as an archive, without a container engine; with its SBOM and values that pin it
	go run ./hack image

release: $(TOOLS)/govulncheck ## Write the files of a release into dist/ from the last commit: make release VERSION=0.1.0 KEY=release.pem
	go run ./hack release -version "$(VERSION)" -key "$(KEY)" -tool $(TOOLS)/govulncheck

demo: ## Show three real clusters working as one (KEEP=1 leaves them running)
	@hack/deps.sh
	@echo "Compiling the demo: minutes with an empty build cache, else seconds."
	@go build -buildvcs=false -o bin/demo ./e2e/demo # go run would turn Ctrl-C into an error
	@bin/demo

# Only the network needs root. BENCH_FLAGS="--only pods --pairs 3", "--only reflection --objects 100",
# "--only network", "--only outage --outage-pods 300", "--only flood", "--only scale --scale-pods 2000",
# "--no-policies" and others.
bench: ## Measure offloading beside a direct mirror, reflection, the network and an outage
	go run ./e2e/bench $(BENCH_FLAGS)

# A commit that makes pods cheaper writes the hash of the one before it into the file. AGAINST=COMMIT compares with another one.
ratchet: ## Fail if pods cost more CPU or requests than at the commit in e2e/bench/ratchet (some 15 minutes, quiet machine)
	go run ./e2e/bench --only pods --out bin/bench-against.json --against $(or $(AGAINST),$(shell cat e2e/bench/ratchet)) $(BENCH_FLAGS)

# CHAOS_FLAGS="-seed N" makes other random choices, "-only TEXT" runs only the scenarios (of peerings: the cases) whose name contains that.
# ANARCHY_FLAGS="-for 5m -seed 7" is for the part that breaks three clusters under traffic.
chaos: ## Kill and pause the roles at every write of a pod's life and of a peering's, and at random; break three clusters
	go test -v -count=1 -timeout=45m ./e2e/timed -run TestAnarchy -args -all -for 15m $(ANARCHY_FLAGS)
	go test -v -count=1 -timeout=90m ./e2e/timed -skip 'TestPeerings|TestSoak|TestAlarm|TestAnarchy' -args -all $(CHAOS_FLAGS)
	go test -v -count=1 -timeout=120m ./e2e/timed -run TestPeerings -args -all $(CHAOS_FLAGS)
	go test -count=1 -timeout=30m ./e2e/scenarios -run 'TestFaultsProvider/(replaced|emptied)|TestFaultsHome/vkubelet'

# A minute of it is part of make test. SOAK_FLAGS="-seed 7 -rate 100" and others.
soak: ## Shake reflection for 10 minutes and compare the clusters
	go test -v -count=1 -timeout=30m -run TestSoak ./e2e/timed -args -for 10m $(SOAK_FLAGS)

# ALARM_FLAGS="-for 5m" is shorter.
alarm: ## Require that nothing is said to be down for 30 minutes with busy cores and lost packets
	go test -v -count=1 -timeout=60m -run TestAlarm ./e2e/timed -args -all -for 30m $(ALARM_FLAGS)

# A sample of it is part of make test.
gaps: ## Lose gateways and route agents 120 times under traffic, with limits of the time without a packet
	go test -v -count=1 -timeout=60m ./netfabric/host -run TestNetnsGaps -args -all

# CONFORMANCE_FLAGS="-services Twin" is the other mode. "-focus 'read only busybox|two untainted'" is a sample: it runs only
# the specs whose text matches that, prints the result, and leaves the page.
conformance: ## Run Kubernetes' conformance suite with pods in another cluster, and write docs/conformance.md: hours on 2 cores
	CONFORMANCE=1 $(DEPS)
	go test -v -count=1 -timeout=5h ./e2e/conformance -run TestConformance -args -run-suite $(CONFORMANCE_FLAGS)

# Made anew when the pinned versions change.
$(TOOLS)/staticcheck: hack/tools/go.mod
	@mkdir -p $(TOOLS)
	go -C hack/tools build -o $(CURDIR)/$@ honnef.co/go/tools/cmd/staticcheck

$(TOOLS)/govulncheck: hack/tools/go.mod
	@mkdir -p $(TOOLS)
	go -C hack/tools build -o $(CURDIR)/$@ golang.org/x/vuln/cmd/govulncheck
