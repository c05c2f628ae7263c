"""The part of a durable journal that is the same in every database.

A store (`journal/sqlite/`) adds its tables, its statements and its owners.

1. `encoding`: entries as the JSON text of a row, long values as contents of their own, the chain of
   checksums over the rows of a run, and the seal of a run's own row.
2. `writer`: the open run, the batch in which all runs of an event loop reach the writer, and the one
   thread that writes. Everything that waits becomes one transaction.
3. `reader`: rows back to entries. Every row and content is checked before it is used.
"""
