"""Scheduling: demand and supply, the plan that joins them, and the reasons why tasks wait."""
