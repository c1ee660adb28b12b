"""What drafters of pairs share: a token, and what the model made of the one before it."""
