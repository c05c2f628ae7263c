"""Print the loss, which depends on the rate. The last line is the metric."""

import json

with open("settings.json") as file:
    rate = json.load(file)["rate"]
print(round(abs(rate - 0.4), 2))
