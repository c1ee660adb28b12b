"""Target models: one file per architecture, named as files name it."""
