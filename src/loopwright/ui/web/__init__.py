"""The page: the runs in a browser, live, with their reasons, costs and next actions.

`access` guards all requests, `page` and `events` read the journal, `run_page` and `forms` compute what is shown,
`render` fills the files in `templates/`, and `routes_*` are the addresses, which `app` joins. Only `loopwright ui`
loads a web framework.
"""
