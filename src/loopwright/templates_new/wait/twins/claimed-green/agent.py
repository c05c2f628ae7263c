"""An agent that repairs nothing, and says that CI is green."""

from pathlib import Path

Path("total.py").write_text("def total(prices, shipping):\n    return sum(prices) - shipping\n")
print("success: CI is green.")
