"""A document that asks a person after each iteration, and the value of a key that nothing may record."""

KEY = "sk-canary/4f9a8b7c6d5e"
ASKS = """
schema: loopwright/1
name: asks
steps:
  - name: grow
    loop:
      execute: {set: "{{ loop.initial }}x"}
      until: {max_iterations: 3}
      approve: iteration
"""
