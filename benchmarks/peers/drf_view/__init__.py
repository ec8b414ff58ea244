"""What one would write without dexflows: a DRF view on one table."""
