"""Parts that models are built of, written against ops alone."""
