"""Train a network on the handwritten digits of scikit-learn, with the settings on stdin as JSON.

Prints the loss on held-back images after each pass over the training images, and at the end. The weights begin at
random, so two trainings with equal settings differ: that is the noise that `confirm` measures.
"""

import json
import sys

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier

PASSES = 12

settings = json.load(sys.stdin)
images, digits = load_digits(return_X_y=True)
# The same images are held back in every training.
held_back = np.random.default_rng(0).random(len(digits)) < 0.3
network = MLPClassifier(
    hidden_layer_sizes=(settings["width"],),
    learning_rate_init=settings["rate"],
    alpha=settings["decay"],
    batch_size=64,
)
for step in range(1, PASSES + 1):
    network.partial_fit(images[~held_back] / 16, digits[~held_back], classes=range(10))
    guessed = network.predict_proba(images[held_back] / 16)
    loss = log_loss(digits[held_back], guessed)
    print(f"step {step} loss {loss:.5f}", flush=True)
print(f"val_loss: {loss:.5f}")
