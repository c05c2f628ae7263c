"""The part of a durable journal that is the same in every database.

A store (`journal/sqlite/`) adds its tables, its statements and its owners.

1. `encoding`: entries as the JSON text of a row, and long values as contents of their own.
2. `rows`: the chain of checksums over the rows of a run, and the seal of a run's own row.
3. `run_log`: the open run, and the batch in which all runs of an event loop reach the writer.
4. `writer`: the one thread that writes. Everything that waits becomes one transaction.
5. `reader`: rows back to entries. Every row and content is checked before it is used.
"""
