"""Drafters guess the next tokens; the model verifies them. One file per kind, by plugin."""
