"""The search: how far a candidate's gradient is from the observed one, and how that is made small."""
