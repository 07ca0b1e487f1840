# Everything here works from a clean clone: each target sets up what it needs, and that is quick when nothing is missing.

PY := .venv/bin/python
# Chaos first, since it mostly waits, and then the rings, the fastest first. Spark needs a processor for itself: two of them run at
# a time. What is marked `alone` looks at a clock, and comes late, two at a time. What is also marked `quiet` (the benchmark, the
# lab) has the machine to itself.
RINGS := $(addprefix tests/,chaos night unit property contract simulation security integration browser)
ALONE = $(shell grep -rl --include='test_*.py' 'mark.alone' $(RINGS))
QUIET = $(shell grep -rl --include='test_*.py' 'mark.quiet' $(RINGS))
# Their result depends on few files; scripts/proofs.py runs them when one of these has changed. With PYTEST_ARGS they are tests like others.
PROOFS = $(if $(PYTEST_ARGS),,$(shell $(PY) -m scripts.proofs --files))
SOURCES := torrentdist cli scripts tests $(if $(wildcard bench/*.py),bench)
PYTEST_ARGS ?=
# pytest ends with 5 if the arguments choose none of the tests
NONE_CHOSEN = { [ $$? = 5 ] && $(if $(PYTEST_ARGS),true,false); }
# While Spark's tests mostly wait: the proofs that are due, and new stories of the simulation with what is left of the processors.
STORIES = PYTHONHASHSEED=0 PYTHONPATH=tests nice $(PY) -m simulation.run
BESIDE_SPARK = { $(PY) -m scripts.proofs && $(STORIES) --story mixed --count 60 --secs 120 && $(STORIES) --story quiet --seed 1 --count 10 --secs 40; }
# A sample of breaks in `make test`. At a bar of 5 in 100, 10 survivors of 60 fail it. Modules that keep the real bar, 3 in 100, give so
# many in one of 90,000 runs by the binomial distribution; where 20 in 100 survive, four of five runs fail, and where 25 do, all but one of 20.
BREAKS := --kind deciding --modules 8 --count 60 --within 25 --bar 0.05
# Rings that `make coverage-map` records. A map holds what was recorded before, so that one ring at a time can be added.
MAPPED ?= tests/unit tests/property
DURATIONS := --durations=25 --durations-min=1

# Many a container forbids Python to keep what it compiles, and each worker of pytest would compile all tests again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test release test-fast engines breaks coverage-map lint style format docs site bench bench-short bench-doors bench-spark bench-versions swarm chaos night kubernetes kubernetes-nodes chart simulate cases size property fuzz wheel deb lock sbom clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.* ## /  make \1 \t/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## .venv with everything, and what the tests use of Debian's packages, Java among it; `make demo` sets up less
	@scripts/setup

demo: ## a cluster on this machine: upload, distribute, a Spark job, a failover, a report; HOLD=1 keeps it until Ctrl-C
	@scripts/setup demo
	@$(PY) scripts/demo.py $(if $(HOLD),--hold)

build/compiled-tests: | setup # once in a clone: otherwise all workers of the first run would do it at the same time
	@mkdir -p build; $(PY) -m pytest -q --collect-only tests >$@.log || { tail -n 40 $@.log; exit 1; }; mv $@.log $@

test: style build/compiled-tests ## style, then types and every ring of tests, the fastest first
	@$(PY) -m mypy $(SOURCES) & types=$$!; $(PY) -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder -m "not alone" $(DURATIONS) $(PYTEST_ARGS) \
		$(addprefix --ignore=,$(PROOFS)) $(RINGS) || $(NONE_CHOSEN); tests=$$?; wait $$types && exit $$tests
	@$(if $(PYTEST_ARGS),true,$(BESIDE_SPARK)) & beside=$$!; $(PY) -m pytest -q -n 2 --dist loadfile $(DURATIONS) $(PYTEST_ARGS) \
		$(addprefix --ignore=,$(PROOFS)) tests/spark || $(NONE_CHOSEN); tests=$$?; wait $$beside && exit $$tests
	@$(if $(PYTEST_ARGS),true,$(PY) -m scripts.breaks $(BREAKS))
	@$(PY) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "alone and not quiet" $(DURATIONS) $(PYTEST_ARGS) $(filter-out $(PROOFS),$(ALONE)) \
		|| $(NONE_CHOSEN)
	@$(PY) -m pytest -q -m quiet $(DURATIONS) $(PYTEST_ARGS) $(QUIET) || $(NONE_CHOSEN)

release: test ## what is tried before a release, some hours: each proof anew, 50 times the examples, the formats, real engines
	@$(PY) -m scripts.proofs --all
	@$(MAKE) property fuzz engines

test-fast: style build/compiled-tests ## style and types, and the rings that need no cluster, unit and property: about 80 seconds
	@$(PY) -m mypy $(SOURCES) & types=$$!; $(PY) -m pytest -q -n 4 --dist worksteal -m "not alone" $(DURATIONS) $(PYTEST_ARGS) \
		tests/unit tests/property; tests=$$?; wait $$types && exit $$tests

engines: setup ## Spark on real HDFS and YARN, on hosts in namespaces: needs root, fetches 190 MB once: make engines [SPARK=3.5.7]
	@scripts/engines
	@for more in httpfs jar s3; do scripts/engines-$$more || [ $$? = 75 ] || exit 1; done # their tests are left out without them
	@$(if $(SPARK),ENGINES_SPARK_HOME="$$(scripts/engines-spark $(SPARK))" && export ENGINES_SPARK_HOME &&) \
		PATH="$(CURDIR)/build/engines-s3/bin:$$PATH" PYTHONPATH=tests $(PY) -m engines.ring -rs $(PYTEST_ARGS)

breaks: setup ## break the code on purpose, and see that a test notices: make breaks [COUNT=100] [SEED=n] [WORDS=conductor] [KIND=deciding]
	@$(PY) -m scripts.breaks $(WORDS) --count $(or $(COUNT),100) $(if $(SEED),--seed $(SEED)) $(if $(KIND),--kind $(KIND))

coverage-map: setup ## record which test and which story runs which line, for make breaks: make coverage-map [MAPPED=tests/integration]
	@$(PY) -m scripts.breaks --record -n 2 --dist loadfile -m "not quiet" $(MAPPED)
	@PYTHONHASHSEED=0 PYTHONPATH=tests:. $(PY) -m scripts.breaks.story_breaks --record

lint: style ## style and types
	@$(PY) -m mypy $(SOURCES)

style: setup
	@$(PY) -m ruff check $(SOURCES)
	@$(PY) -m ruff format --check --quiet $(SOURCES)

format: setup ## put the sources into the house's format
	@$(PY) -m ruff check --fix --quiet $(SOURCES)
	@$(PY) -m ruff format $(SOURCES)

docs: setup ## generate the pages of docs/ and the dashboard that the code defines
	@$(PY) scripts/reference.py

site: setup ## the documentation as a site in build/site, every link checked
	@.venv/bin/mkdocs build --quiet

bench: setup ## measure against peers; the last results stay in bench/
	@$(PY) -m bench

bench-short: setup ## the same on less data; nothing is kept
	@$(PY) -m bench --short

swarm: setup ## hosts on slow links in namespaces: make swarm HOSTS=16 RATE=25 SIZE=32 HOLDERS=1, or SCENARIO=killed
	@$(PY) -m bench.swarm.lab_run $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(HOSTS),--hosts $(HOSTS)) \
		$(if $(RATE),--rate $(RATE)) $(if $(SIZE),--size $(SIZE)) $(if $(HOLDERS),--holders $(HOLDERS)) $(SWARM_ARGS)

bench-versions: setup ## what a new version costs, and its bars: make bench-versions [DIR=bench/out] [ONLY=archive,jars] [RUNS=3] [SMALL=1]
	@$(PY) -m bench.versions.versions_run --dir $(or $(DIR),bench/out) $(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--runs $(RUNS)) $(if $(SMALL),--small)

bench-doors: setup ## images and S3 beside docker-registry, nginx and local files: make bench-doors [ONLY=pull,objects,scan,builds,fleet]
	@$(PY) -m bench.gateway.gateway_run $(if $(ONLY),--only $(ONLY))

bench-spark: setup ## Spark's own --archives beside ours: make bench-spark [HOSTS=2,4,8] [RATE=50] [SIZE=32]
	@$(PY) -m bench.spark.spark_run --hosts $(or $(HOSTS),2,4,8) --rate $(or $(RATE),50) --size $(or $(SIZE),32)

simulate: setup ## nights of a whole cluster on a virtual clock: make simulate [COUNT=100] [SEED=n] [STORY=night] [SIMULATE_ARGS=--verbose]
	@PYTHONHASHSEED=0 PYTHONPATH=tests $(PY) -m simulation.run --count $(or $(COUNT),100) $(if $(SEED),--seed $(SEED)) $(if $(STORY),--story $(STORY)) $(SIMULATE_ARGS)

chaos: setup ## random faults over a cluster under load: make chaos [TIME=600] [SEED=n]
	@PYTHONPATH=tests $(PY) -m chaos.run --time $(or $(TIME),600) $(if $(SEED),--seed $(SEED))

night: setup ## break a cluster in 25 ways, and measure how soon each is named: make night [ONLY=disk,clock] or [ORDINARY=3600]
	@PYTHONPATH=tests $(PY) -m night.run $(if $(ONLY),--only $(ONLY)) $(if $(ORDINARY),--ordinary $(ORDINARY))

chart: setup ## deploy/kubernetes anew from the chart in deploy/helm, by the helm that Go builds
	@HELM="$$(scripts/helm)" && export HELM && $(PY) scripts/manifests.py

kubernetes: setup ## three nodes on a real control plane of Kubernetes, the CSI driver alone, csi-sanity, and the chart in helm; Go builds all once; needs root
	@CSI_SANITY="$$(scripts/csi-sanity)" && HELM="$$(scripts/helm)" && KUBERNETES_PROGRAMS="$$(scripts/kubernetes)" && \
		export CSI_SANITY HELM KUBERNETES_PROGRAMS && \
		{ $(PY) -m pytest -q $(PYTEST_ARGS) tests/kubernetes || $(NONE_CHOSEN); } && \
		{ PYTHONPATH=tests $(PY) -m kubernetes.ring $(PYTEST_ARGS) || $(NONE_CHOSEN); }

kubernetes-nodes: setup ## the part of it with the three nodes
	@KUBERNETES_PROGRAMS="$$(scripts/kubernetes)" && export KUBERNETES_PROGRAMS && PYTHONPATH=tests $(PY) -m kubernetes.ring $(PYTEST_ARGS)

property: setup ## every property test with 50 times its examples, about an hour: make property [TIMES=50] [PYTEST_ARGS=...]
	@TORRENTDIST_PROPERTY_TIMES=$(or $(TIMES),50) $(PY) -m pytest -q -n 2 --dist worksteal $(PYTEST_ARGS) \
		$(shell grep -rl --include='test_*.py' '^from hypothesis' tests)

fuzz: setup ## random and damaged inputs of every format, and requests of both APIs: make fuzz [COUNT=100000] [REQUESTS=100] [SECS=60]
	@echo "1/3 random: $(or $(COUNT),100000) inputs for each of 6 formats: about 8 minutes for 100000"
	@TORRENTDIST_FUZZ_COUNT=$(or $(COUNT),100000) $(PY) -m pytest -q $(PYTEST_ARGS) tests/security/test_fuzz.py
	@echo "2/3 requests: $(or $(REQUESTS),100) to each operation of a master and a gateway, with every role: about 20 minutes for 100"
	@FUZZ_REQUESTS=$(or $(REQUESTS),100) $(PY) -m pytest -q $(PYTEST_ARGS) tests/security/test_described_apis.py
	@if $(PY) -c "import atheris" 2>/dev/null; then echo "3/3 guided by coverage:"; \
		PYTHONPATH=tests $(PY) tests/security/guided_fuzz.py --secs $(or $(SECS),60); \
	else echo "3/3 guided by coverage: left out; $(PY) -m pip install 'atheris>=3.0', where it has a wheel, adds 8 minutes"; fi

cases: setup ## every case of docs/cases.md with its tests
	@$(PY) scripts/cases.py

size: ## lines of code of each room, and how they changed: make size [SINCE=commit]
	@python3 scripts/size.py $(if $(SINCE),--since $(SINCE))

wheel: setup ## our wheel in dist/, with the lock files that a host installs it by
	@$(PY) scripts/man_pages.py build/man
	@$(PY) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@rm -rf torrentdist.egg-info # Python would believe it rather than what is installed
	@cp requirements/host.txt dist/torrentdist-host.txt
	@cp requirements/server.txt dist/torrentdist-server.txt
	@cp requirements/traces.txt dist/torrentdist-traces.txt
	@ls dist/torrentdist-*

deb: setup ## a Debian package in dist/: /opt/torrentdist, the systemd units, and the users
	@scripts/deb dist

lock: setup ## the lock files in requirements/ anew, after a change of pyproject.toml: make lock [UPGRADE=--upgrade]
	@scripts/lock $(UPGRADE)

sbom: setup ## every package that a host gets, with versions and hashes, as CycloneDX in build/sbom.cdx.json
	@[ -x build/tools/bin/cyclonedx-py ] || $(PY) -m venv build/tools
	@build/tools/bin/python -m pip install --quiet --quiet --disable-pip-version-check --require-hashes -r requirements/tools.txt
	@PYTHONWARNINGS=ignore build/tools/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON \
		--output-file build/sbom.cdx.json requirements/host.txt
	@echo build/sbom.cdx.json

clean: ## remove what was built and cached; .venv stays
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/out
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
