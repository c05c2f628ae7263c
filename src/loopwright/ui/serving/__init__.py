"""The workflows of a folder as operations that other programs call: over MCP, and over HTTP.

`operations.py` has the table of operations that both offer, `service.py` does them.
"""
