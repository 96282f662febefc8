# Two commands do everything: `make run` and `make test`. `make help` lists the rest.

.DEFAULT_GOAL := help
CARGO ?= cargo
export RUST_BACKTRACE ?= 0
# Most tests wait for servers and their clocks, not for a processor.
export RUST_TEST_THREADS ?= $(shell expr 2 '*' "$$(nproc)")

.PHONY: help run cluster release test test-long check fix deps-build deps-cluster deps-test deps-bench bench-locks bench-docs bench-leases bench-shards bench-cluster

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

run: deps-build ## build and start a server with every interface on
	$(CARGO) build --locked --profile quick -p lockwood
	./target/quick/lockwood serve --skip-unavailable --locktopus --openslides --elasticsearch --schema-registry

cluster: deps-cluster ## build and start three nodes over a PostgreSQL of their own
	$(CARGO) build --locked --profile quick -p lockwood
	scripts/cluster

release: deps-build ## build the binary for packages: fully optimised and stripped, its symbols beside it
	CARGO="$(CARGO)" scripts/release

test: deps-test check ## install what the tests need and run all of them
	$(CARGO) test --locked --workspace

test-long: deps-test ## the model tests, fuzzers and kills for much longer; SEED=n starts elsewhere
	LOCKWOOD_MODEL_HISTORIES=1000000 LOCKWOOD_MODEL_SEED=$(or $(SEED),20000) $(CARGO) test --locked -p lockwood-locks -p lockwood-engine
	LOCKWOOD_FUZZ_COUNT=20000000 LOCKWOOD_FUZZ_SEED=$(or $(SEED),2) $(CARGO) test --locked -p lockwood-wire -p lockwood-server fuzz
	LOCKWOOD_KILLS=500 $(CARGO) test --locked -p lockwood --test native document_crash
	LOCKWOOD_PURGE_ROUNDS=100 LOCKWOOD_PURGE_SEED=$(or $(SEED),2) $(CARGO) test --locked -p lockwood --test native purge_storm
	LOCKWOOD_CLUSTER_FAULTS=200 LOCKWOOD_CLUSTER_SEED=$(or $(SEED),7) $(CARGO) test --locked -p lockwood --test cluster storm
	LOCKWOOD_CRASH_ROUNDS=5 $(CARGO) test --locked -p lockwood --test cluster crash_points
	LOCKWOOD_CLUSTER_SEED=$(or $(SEED),7) $(CARGO) test --locked -p lockwood --features planted --test cluster planted
	LOCKWOOD_MODEL_HISTORIES=20000 LOCKWOOD_MODEL_SEED=$(or $(SEED),20000) $(CARGO) test --locked -p lockwood-router

check: ## format, lints and purity; changes nothing
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	scripts/purity

fix: ## put right what `check` complains about, where a machine can
	$(CARGO) fmt --all
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged

bench-locks: deps-bench ## measure locks in process and over the network, beside Redis
	$(CARGO) build --locked --release -p lockwood -p lockwood-bench
	./target/release/lockwood-bench locks

bench-docs: deps-bench ## measure documents, beside PostgreSQL and Tarantool
	$(CARGO) build --locked --release -p lockwood -p lockwood-bench
	./target/release/lockwood-bench docs

bench-leases: deps-bench ## measure leases, enforcement, search and join, beside etcd and PostgreSQL
	$(CARGO) build --locked --release -p lockwood
	$(CARGO) build --locked --release -p lockwood-bench --features etcd
	./target/release/lockwood-bench leases

bench-shards: deps-bench ## measure routing, search over shards and resharding over PostgreSQL, beside Tarantool
	$(CARGO) build --locked --release -p lockwood -p lockwood-bench
	./target/release/lockwood-bench shards

bench-cluster: deps-bench ## measure nodes over PostgreSQL: takeovers, writes beside its own, a hop, leases beside etcd, moving documents
	$(CARGO) build --locked --release -p lockwood
	$(CARGO) build --locked --release -p lockwood-bench --features etcd
	./target/release/lockwood-bench cluster

deps-build:
	scripts/deps build

deps-cluster:
	scripts/deps cluster

deps-test:
	scripts/deps test

deps-bench:
	scripts/deps bench
