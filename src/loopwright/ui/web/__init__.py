"""The page: the runs in a browser, live, with their reasons, costs and next actions.

`access` guards all requests, `queries` and `events` read the journal, `page_models`, `steps` and
`templates` are the pages, and `routes_*` are the addresses. Only `loopwright ui` loads a web framework.
"""
