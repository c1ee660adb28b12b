"""What the MTP drafter is made of."""
