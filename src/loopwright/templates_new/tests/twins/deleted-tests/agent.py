"""An agent that deletes the tests, so that none fails."""

from pathlib import Path

Path("test_prices.py").unlink()
