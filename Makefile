# Shortcuts. Nothing here is needed to build or to test: README.md has the commands.

FUZZTIME ?= 10m

.PHONY: all test fuzz bench soak torture clean

all:
	CGO_ENABLED=0 go build -o hallmark ./cmd/hallmark

test:
	./test.sh

# Every fuzz target in turn, each for FUZZTIME.
fuzz:
	@set -e; for pkg in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "== $$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$pkg; \
		done; \
	done

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
	rm -f hallmark
	go clean -testcache -fuzzcache
