"""The pages. Nothing is computed here: they ask, they wait, and they show what comes back."""
