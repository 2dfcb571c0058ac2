# Everything needs Rust, make and a C compiler (zstd and libdeflate bring their own C); nothing else is set up by hand.
#
#   make demo     build, then tell the story of Platter on sparse files: create, fill, break, heal, move
#   make test     all tests; those that need OpenZFS's own tools report themselves as skipped without them
#   make test-big the slow ones: a tree of 50 000 files, 4 GiB of data
#   make lint     formatting, clippy, the house rules, and the licences of what we depend on
#
# The first two need FUSE (/dev/fuse, and root or fusermount3) for the parts that mount.

CARGO ?= cargo
# Where `make lint` puts cargo-deny when the machine has none.
TOOLS := $(or $(CARGO_TARGET_DIR),target)/tools

.PHONY: all demo test test-big lint fmt
.DEFAULT_GOAL := all

all:
	$(CARGO) build --release

demo:
	$(CARGO) build --release --package platter
	demo/demo.sh

# The integration tests run the binary, so it is built first, in the same profile.
test:
	$(CARGO) build --package platter
	$(CARGO) test --workspace

# Slow: in release, one after the other.
test-big:
	$(CARGO) build --release --package platter
	$(CARGO) test --release --package platter-itest --test big -- --ignored --nocapture --test-threads=1

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --quiet --package platter-tidy
	@command -v cargo-deny >/dev/null || test -x $(TOOLS)/bin/cargo-deny || \
		$(CARGO) install --quiet --locked --root $(TOOLS) --target-dir $(TOOLS)/build cargo-deny
	PATH="$(abspath $(TOOLS))/bin:$$PATH" $(CARGO) deny --all-features check --hide-inclusion-graph bans licenses sources

fmt:
	$(CARGO) fmt --all
