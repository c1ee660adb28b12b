"""What drafts of whole blocks are built of."""
