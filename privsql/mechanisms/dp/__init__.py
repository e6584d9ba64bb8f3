"""What the differentially private mechanisms share: laws of noise, noisy tables, and one model that fits them."""
