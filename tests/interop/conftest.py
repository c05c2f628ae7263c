"""Tests with the libraries themselves run in the project of this folder: `make test-interop`."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("deepeval") else ["libraries"]
