"""Stands for a coding agent: it tries a rate in each iteration."""

import json
import os

rates = {"1": 0.8, "2": 0.9, "3": 0.5}
with open("settings.json", "w") as file:
    json.dump({"rate": rates.get(os.environ["ITERATION"], 0.7)}, file)
