"""The part of a durable journal that is the same in every database.

A store (`journal/sqlite/`) adds its tables, its statements and its owners.

1. `encoding`: the format of rows, the chain of checksums over the rows of a run, and the seal of a
   run's own row.
2. `log`: the open run. Its entries become the JSON text of rows, its long values contents, and the
   rows of all runs of an event loop a batch.
3. `writer`: the one thread that writes. Everything that waits becomes one transaction.
4. `reader`: rows back to entries. Every row and content is checked before it is used.
"""
