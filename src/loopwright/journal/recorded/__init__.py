"""The part of a durable journal that is the same in every database.

A store (`journal/sqlite/`, `journal/postgres/`) adds its tables, its statements and its owners.

1. `rows`: the format of rows, the chain of checksums over the rows of a run, the seal of a run's own row, and
   rows back to entries. Every row and content is checked before it is used.
2. `log`: the open run. Its entries become the JSON text of rows, its long values contents, and the
   rows of all runs of an event loop a batch.
3. `writer`: the one thread that writes. Everything that waits becomes one transaction.
4. `ownership`: how the row of a run is found, created, taken, released and rewound.
5. `journal`: the Journal protocol, pages and memories on top of them.
"""
