"""Images to train on and to attack, and how they get here."""
