# The few commands people type. Each is short enough to be read.

.PHONY: run demo test test-all test-python test-foreign rig check dist dist-check fuzz-long bench soak wheel

# In CI everything is built once: without line numbers, and without what makes a second build faster.
ifeq ($(CI),true)
export CARGO_INCREMENTAL := 0
export CARGO_PROFILE_DEV_DEBUG := false
endif

# Builds and serves a folder until Ctrl-C: DIR=..., or one with a few files made for it.
run:
	cargo build --release --locked
	scripts/demo "$(DIR)"

# Sends 1 GiB between two processes over TCP, verifies it, shows receipts and a table.
demo:
	cargo build --release --locked
	scripts/demo-send

# Installs the tests' peers where it may, and runs every test.
test:
	scripts/test-peers
	scripts/tests
	UNDERPASS=target/debug/underpass scripts/test-python
	rig/run

# The same with many more rounds of what is tried at random.
test-all:
	UNDERPASS_FULL=1 scripts/features
	UNDERPASS_KILLS=100 UNDERPASS_CUTS=30 UNDERPASS_FULL=1 FUZZ_SECONDS=30 $(MAKE) test

# The tests of the wheel alone.
test-python:
	scripts/test-python

# The wheel for Python, with the program in it.
wheel:
	scripts/wheel --release

# Test suites that others wrote, from packages, with the outcomes that are expected.
test-foreign:
	scripts/test-foreign

# The checks of TLS in the kernel, in small virtual machines.
rig:
	scripts/test-peers
	rig/run

# Everything that has to hold before a change lands.
check:
	scripts/check

# Makes a Debian package, an RPM, a tarball and an OCI image below target/dist/release/.
dist:
	scripts/dist/all
	scripts/dist/verify

# The same with programs that are built quickly: checks the scripts.
dist-check:
	PROFILE=dev scripts/dist/all
	PROFILE=dev scripts/dist/verify

# Looks for inputs that break what must hold for all, ten minutes for each target (FUZZ_SECONDS=600).
fuzz-long:
	scripts/fuzz $(or $(FUZZ_SECONDS),600)

# Serves mixed clients for an hour (SOAK_MINUTES=60) and looks for what is not given back.
soak:
	cargo build --release --locked
	scripts/soak

# The articles' tables on this machine; records in bench/.
bench:
	cargo build --release --locked
	scripts/bench
