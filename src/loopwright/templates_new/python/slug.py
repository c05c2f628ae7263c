def slug(title):
    """Return a title as a part of an address: lower case, with a dash between words."""
    return title.replace(" ", "-")
