import unittest

from slug import slug


class Slug(unittest.TestCase):
    def test_words(self):
        self.assertEqual(slug("Loops that End"), "loops-that-end")
