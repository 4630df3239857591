# Two commands do all the set-up on a fresh Debian or Ubuntu machine:
#   make demo   install what is missing, build, make the template, run the example
#   make test   the same, then every check and test
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
ifeq ($(origin GO),undefined)
GO := $(shell SUDO="$(SUDO)" ./hack/go)
endif
$(if $(GO),,$(error there is no Go to build with))
export GO
# Programs that call go themselves find the same one.
export PATH := $(if $(filter /%,$(GO)),$(patsubst %/,%,$(dir $(GO))):)$(PATH)

.PHONY: build client deb deps template demo test hosts check generate fuzz bench torture clean

# Three programs in one directory: custody finds custody-guest beside itself, and custody-client finds custody.
build:
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w" -buildvcs=false -o bin/custody-guest ./cmd/custody-guest
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w" -o bin/custody ./cmd/custody
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w" -buildvcs=false -o bin/custody-client ./cmd/custody-client

# The program for macOS, which uses the services of other machines.
client:
	@mkdir -p bin
	for arch in arm64 amd64; do \
	  GOOS=darwin GOARCH=$$arch CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w" -o bin/custody-darwin-$$arch ./cmd/custody || exit 1; \
	done

# The Debian package with the service, in bin; ARCH=arm64 builds it for arm64.
deb: build
	@./packaging/build $(if $(ARCH),--arch $(ARCH))

deps:
	@SUDO="$(SUDO)" ./hack/deps

template: build
	@$(SUDO) env CUSTODY_HOME="$${CUSTODY_HOME:-}" HOME="$$HOME" ./bin/custody template ls | grep -q '^base ' \
		|| $(SUDO) env CUSTODY_HOME="$${CUSTODY_HOME:-}" HOME="$$HOME" ./bin/custody template build base

demo: deps template
	@SUDO="$(SUDO)" ./examples/demo

test: deps build check
	@SUDO="$(SUDO)" ./hack/test

# Runs everything in complete Debian hosts with nested KVM, and writes the results to docs/hosts.md: some hours.
hosts: build
	@SUDO="$(SUDO)" ./hack/hostvm/hosts

# What needs no VM: formatting, vet, cross-building, generated files.
check:
	@./hack/check

generate:
	$(GO) generate ./...

fuzz:
	@./hack/fuzz

bench: build
	@SUDO="$(SUDO)" ./hack/bench

# Kills what carries the record, 200 times and more.
torture:
	@SUDO="$(SUDO)" ./hack/torture

clean:
	rm -rf bin
