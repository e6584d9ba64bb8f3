"""What differentially private tables of counts share: measured with noise, least squares, and a model that fits."""
