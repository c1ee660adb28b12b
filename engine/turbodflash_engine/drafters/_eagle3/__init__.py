"""What the EAGLE-3 drafter is made of."""
