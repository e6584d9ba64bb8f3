"""Noisy trees and noisy tables: the parts that the differentially private mechanisms share."""
