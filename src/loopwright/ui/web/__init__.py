"""The page: what happened, why it stopped, what it cost and what to do next, live in a browser.

`safety` is the door, `records` and `feed` are what is read and when, `shapes` and `templates` how it
is shown, `views` and `actions` the routes, `command` is `loopwright ui`. Only that command loads a
web framework.
"""
