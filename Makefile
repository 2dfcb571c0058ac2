# Everything needs Rust, make and a C compiler (zstd and libdeflate bring their own C); nothing else is set up by hand.
#
#   make demo     build, then tell the story of Platter on sparse files: create, fill, break, heal, move
#   make test     all tests; those that need OpenZFS's own tools report themselves as skipped without them
#   make check    what needs neither mount nor daemon: formatting, clippy, the house rules, the crates' own tests
#   make dist     the binary without its debug info, and that beside it, in target/dist
#   make test-big the slow ones: a tree of 50 000 files, 4 GiB of data, the kernel's sources, Platter built on a mount
#   make test-posix  other people's suites for file systems at full length: fsx, fio, stress-ng, dbench; about an hour
#   make test-crash      the daemon killed 200 times under a mixed load: half an hour
#   make test-databases  SQLite and PostgreSQL on a mount, with kills: minutes; needs python3 and postgresql
#   make test-snapshots  11 000 random steps with snapshots, clones and promotions against kept copies, receives that go
#                 on from 200 places: minutes
#   make test-backup     sanoid, syncoid, zfs-auto-snapshot, go-zfs, zrepl and bzfs on our zfs, results compared with
#                 judges/backup/expected.tsv; half an hour; BACKUP="program [test...]" for a part of it; needs root, go, pip
#   make test-zts        OpenZFS's own test suite against ours, results compared with judges/zts/expected.tsv; over an hour;
#                 ZTS="group [test...]..." for a part of it, ZTS_PROFILE=release for a binary with optimisation; needs root
#   make test-zts-short  a part of it that takes two minutes
#   make test-xfstests XFSTESTS=...  xfstests (an archive or a folder of it) on our mounts, results compared with
#                 judges/xfstests/expected.tsv; two hours in debug; XFSTESTS_ONLY="generic/001 ..." for some; needs root
#   make test-xfstests-short XFSTESTS=...  a part of it that takes minutes
#   make sim      crashes of every workload of one and two operations, then random ones, for SIM_MINUTES (20) minutes
#   make sim-life whole lifetimes of pools with faults on every disk, one for each of SEEDS (0..1000): an hour
#   make sim-full pools of every layout, one for each of SEEDS, filled until nothing goes in, again and again
#   make sim-replay      the same seeds twice in release, some in debug too: their histories must be the same
#   make sim-canary      proof that it finds deliberate bugs
#   make fuzz-images     pools that somebody has tampered with, opened and used, for FUZZ_SECONDS (600)
#   make sim-model       the simulator's model of time against a published curve, as a table
#   make bench    Platter next to zfs-fuse, btrfs, ext4, xfs, the raw device, an empty FUSE file system and the best
#                 libraries: a table, hours in full; BENCH are its options (`make bench BENCH=--help`), `--quick` takes
#                 minutes, `--growth` measures Platter alone as its pools grow; needs root
#   make lint     formatting, clippy, the house rules, and the licences of what we depend on
#
# The first two need FUSE (/dev/fuse, and root or fusermount3) for the parts that mount.

CARGO ?= cargo
# Where programs of crates.io go that only check us: pjdfstest and fsx for the tests.
TARGET := $(or $(CARGO_TARGET_DIR),target)
TOOLS := $(TARGET)/tools

.PHONY: all dist demo check test test-big test-night test-posix test-crash test-databases test-snapshots test-backup \
	test-zts test-zts-short test-xfstests \
	test-xfstests-short sim sim-full sim-life sim-replay sim-canary sim-model fuzz-images bench lint fmt
.DEFAULT_GOAL := all

all:
	$(CARGO) build --release

# perf and debuggers find the debug info as long as it lies beside the binary.
dist: all
	mkdir -p $(TARGET)/dist
	objcopy --only-keep-debug $(TARGET)/release/platter $(TARGET)/dist/platter.debug
	objcopy --strip-debug $(TARGET)/release/platter $(TARGET)/dist/platter
	cd $(TARGET)/dist && objcopy --add-gnu-debuglink=platter.debug platter

demo:
	$(CARGO) build --release --package platter
	demo/demo.sh

# fsx compares every byte that it wrote: without optimisation it takes longer than what it tests.
$(TOOLS)/bin/pjdfstest $(TOOLS)/bin/fsx: $(TOOLS)/bin/%:
	$(CARGO) install --quiet --locked $(PROFILE) --root $(TOOLS) --target-dir $(TOOLS)/build $*@$(VERSION)

$(TOOLS)/bin/pjdfstest: VERSION := 0.2.2
$(TOOLS)/bin/pjdfstest: PROFILE := --debug
$(TOOLS)/bin/fsx: VERSION := 0.3.2

# Tests that run at once: most of them wait for a disk, a daemon or a time (with two for each processor, 0.45 of both
# processors were in use).
TEST_THREADS ?= $(shell echo $$(($$(nproc) * 3)))

# The integration tests run the binary, so it is built first, in the same profile, and with what the tests ask of
# libraries, so that all is compiled once. One that fails does not hide the next.
test: $(TOOLS)/bin/pjdfstest $(TOOLS)/bin/fsx
	$(CARGO) build --workspace --bins --tests
	PLATTER_BIN=$(abspath $(or $(PLATTER_BIN),$(TARGET)/debug/platter)) RUST_TEST_THREADS=$(TEST_THREADS) \
		$(CARGO) test --workspace --lib --bins --tests --no-fail-fast

check: lint
	$(CARGO) test --workspace --lib

# Slow: in release, one after the other.
test-big:
	$(CARGO) build --release --package platter
	$(CARGO) test --release --package platter-itest --test big --test source_trees -- --ignored --nocapture --test-threads=1

test-posix: $(TOOLS)/bin/pjdfstest $(TOOLS)/bin/fsx
	$(CARGO) build --release --package platter
	$(CARGO) test --release --package platter-itest --test posix_suite --test programs -- --ignored --nocapture --test-threads=1

# Half an hour: 44 disks of which five die, each in another way.
test-night:
	$(CARGO) build --release --package platter
	$(CARGO) test --release --package platter-itest --test night -- --ignored --nocapture --test-threads=1

# Half an hour: nothing that was acknowledged may be lost in 200 kills.
test-crash:
	$(CARGO) build --release --package platter
	$(CARGO) test --release --package platter-itest --test crash -- --ignored --nocapture --test-threads=3

test-snapshots:
	$(CARGO) build --release --package platter
	$(CARGO) test --release --package platter-zpl --test suite -- --ignored --nocapture clones::
	$(CARGO) test --release --package platter-itest --test suite -- --ignored --nocapture streams::

test-backup:
	$(CARGO) build --release --package platter
	judges/backup/run.sh $(BACKUP)

test-databases:
	$(CARGO) build --release --package platter
	$(CARGO) test --release --package platter-itest --test databases -- --ignored --nocapture --test-threads=1

ZTS ?=
ZTS_SHORT := append acl/posix clean_mirror cli_root/zfs_create cli_root/zfs_inherit cli_root/zfs_reservation \
	cli_root/zpool_get cli_root/zpool_set cli_user/zfs_list migration quota renameat2 scrub_mirror truncate
ZTS_PROFILE ?= debug

# What it takes is installed by `.ci/run judges`; ZTS_LANES and ZTS_LIMIT are for judges/zts/run.sh. PLATTER_BIN is a
# binary that is there already, for both suites.
test-zts:
	$(if $(PLATTER_BIN),,$(CARGO) build $(if $(filter release,$(ZTS_PROFILE)),--release) --package platter)
	ZTS_BINARY=$(or $(PLATTER_BIN),$(TARGET)/$(ZTS_PROFILE)/platter) judges/zts/run.sh $(ZTS)

test-zts-short:
	$(MAKE) test-zts ZTS="$(ZTS_SHORT)"

# What it takes is installed by `.ci/run judges`.
test-xfstests:
	$(if $(PLATTER_BIN),,$(CARGO) build --package platter)
	PLATTER=$(or $(PLATTER_BIN),$(TARGET)/debug/platter) XFSTESTS=$(XFSTESTS) judges/xfstests/run.sh $(XFSTESTS_ONLY)

test-xfstests-short:
	$(MAKE) test-xfstests XFSTESTS_ONLY=short

SIM_MINUTES ?= 20
SEED ?= 1

sim:
	$(CARGO) run --quiet --release --package platter-sim -- crash --seed $(SEED) --minutes $(SIM_MINUTES)

SEEDS ?= 0..1000

sim-full:
	$(CARGO) run --quiet --release --package platter-sim -- full --seeds $(SEEDS)

sim-life:
	$(CARGO) run --quiet --release --package platter-sim -- life --seeds $(SEEDS) --verbose

# Byte for byte the same, whoever builds it and whatever runs beside it. In one life of ten the host loses sight of its
# disks, and many wait for the same thing: so there are more of them, twice.
sim-replay:
	$(CARGO) build --quiet --release --package platter-sim
	$(CARGO) build --quiet --package platter-sim
	for run in release-1 release-2 debug-3; do \
		$(TARGET)/$${run%-*}/platter-sim life --seeds 0..20 --verbose | grep '^seed ' | sort -V > $(TARGET)/sim-$$run.txt; \
	done
	for run in 4 5; do \
		$(TARGET)/release/platter-sim life --seeds 1000..1030 --verbose | grep '^seed ' | sort -V > $(TARGET)/sim-release-$$run.txt; \
	done
	cmp $(TARGET)/sim-release-1.txt $(TARGET)/sim-release-2.txt
	cmp $(TARGET)/sim-release-1.txt $(TARGET)/sim-debug-3.txt
	cmp $(TARGET)/sim-release-4.txt $(TARGET)/sim-release-5.txt
	@echo "50 lives have the same history twice, 20 of them in debug too"

# A build of its own: nothing that is for use has the bugs in it.
sim-canary:
	$(CARGO) run --quiet --release --package platter-sim --features canary -- canary --seed $(SEED)

sim-model:
	$(CARGO) run --quiet --release --package platter-sim -- model

FUZZ_SECONDS ?= 600
FUZZ_SEEDS ?= 0..10000

fuzz-images:
	$(CARGO) run --quiet --release --package platter-sim -- images --seeds $(FUZZ_SEEDS) --seconds $(FUZZ_SECONDS)

BENCH ?= --save

# It runs the binary that lies beside it. What is not on the machine (zfs-fuse, btrfs, ext4, xfs, fio, raidz_test, git)
# is reported.
bench:
	$(CARGO) build --release --package platter
	$(CARGO) run --release --package platter-bench -- $(BENCH)

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --quiet --package platter-tidy

fmt:
	$(CARGO) fmt --all
