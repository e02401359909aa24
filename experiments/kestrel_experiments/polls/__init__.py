"""Workers that are polled for what they measure, and what this costs their manager."""
