"""Subjects of measurements, and their baselines."""
