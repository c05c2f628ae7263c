# Two commands on a fresh machine: make demo, make test. Each creates what it needs.
PYTHON ?= python3
UV := .venv/bin/uv
RUN := .venv/bin

.PHONY: install npm chromium demo test check fix bench torture clean

.venv/bin/uv:
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet uv

.venv/.synced: pyproject.toml uv.lock | .venv/bin/uv
	$(UV) sync --quiet --frozen --inexact
	@touch $@

install: .venv/.synced

# The MCP servers that tests run against. Without node their tests are skipped, in CI they fail.
tests/npm/node_modules/.synced: tests/npm/package.json tests/npm/package-lock.json
	@if command -v npm >/dev/null; then \
	  npm ci --prefix tests/npm --silent --no-audit --no-fund && touch $@; \
	else \
	  echo "*** npm is missing: the tests with real MCP servers cannot run; install node 20 or later"; \
	  test -z "$$CI"; \
	fi

npm: tests/npm/node_modules/.synced

# The browser that the page is tested in. Where it cannot be installed its tests are skipped, in CI they fail.
chromium:
	@if command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; then :; \
	else \
	  echo "*** chromium is missing: the page cannot be tested in a browser; install chromium"; \
	  test -z "$$CI"; \
	fi

demo: install
	@$(RUN)/python examples/demo.py

check: install
	$(RUN)/ruff check src tests examples benchmarks
	$(RUN)/ruff format --check src tests examples benchmarks
	$(RUN)/mypy src
	$(RUN)/lint-imports

test: check npm chromium
	$(RUN)/pytest -n 2

fix: install
	$(RUN)/ruff format src tests examples benchmarks
	$(RUN)/ruff check --fix src tests examples benchmarks

bench: install
	$(RUN)/python -m benchmarks

torture: install
	$(RUN)/python tests/crash/torture.py
	$(RUN)/python tests/crash/torture_agents.py

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
