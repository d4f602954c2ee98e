# Shortcuts. Nothing here is needed to build or to test: README.md has the commands.

FUZZTIME ?= 10m

KERNELS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hallmark/kernels
KERNEL ?= 6.1
PKG ?= ./internal/bpf
RUN ?= .

.PHONY: all release test quick kernels on goldens fuzz dwarf-programs bench soak torture clean

all:
	CGO_ENABLED=0 go build -o hallmark ./cmd/hallmark

# The files that users install, in dist/, of the last commit: the same bytes wherever it is built.
# RELEASE=-dirty leaves out changes that are not committed.
release:
	go run ./internal/release $(RELEASE)

test:
	./test.sh

# What needs no root, no other kernels and no perf: six minutes on two cores.
quick:
	./test.sh --quick

# Debian's kernels, that tests run on.
kernels:
	internal/vmtest/getkernels.sh $(KERNELS)

# The tests RUN of the package PKG on the kernel KERNEL: they, and what lies in their
# directory, are all that there is beside a shell. KERNEL=6.12-arm64 is for arm64.
on: export CGO_ENABLED = 0
on: kernels
	go build -o $(KERNELS)/onkernel ./internal/vmtest/onkernel
	GOARCH=arm64 go build -o $(KERNELS)/onkernel-arm64 ./internal/vmtest/onkernel
	GOARCH=$(if $(filter %-arm64,$(KERNEL)),arm64,amd64) go test -count=1 -v -run '$(RUN)' -exec '$(KERNELS)/onkernel $(KERNELS)/vmlinuz-$(KERNEL)' $(PKG)

# What the kernels say of the programs and to the doctor, of this machine's and of all
# others.
goldens: kernels
	go test -count=1 -run TestVerifiedInstructions ./internal/bpf -update
	HALLMARK_KERNELS=$(KERNELS) go test -count=1 -timeout 60m ./internal/vmtest -update

# Every fuzz target in turn, each for FUZZTIME.
fuzz:
	@set -e; for pkg in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "== $$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$pkg; \
		done; \
	done

# PROGRAMS generated programs, in all forms of DWARF, against what is true of them, and a
# part of them against other tools. PROGRAMS==SEED is one of them alone.
PROGRAMS ?= 100000
dwarf-programs:
	HALLMARK_PROGRAMS=$(PROGRAMS) go test -count=1 -v -timeout 4h -run '^TestGeneratedPrograms' ./symbol

# The tables of bench/README.md, made anew on this machine.
bench:
	cd bench && ./run.sh

# Ten minutes of recording under constant churn, watched: as root.
soak: all
	cd bench && go run ./soak -hallmark ../hallmark

# What each backend and its peers know of files that are treated badly: as root.
torture: all
	go test -run '^$$' -bench NeverWrong -benchtime 1x ./capture -hallmark $(CURDIR)/hallmark

clean:
	rm -rf hallmark dist .dist-*
	go clean -testcache -fuzzcache
