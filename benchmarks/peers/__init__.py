"""What dexflows is measured beside; each peer runs without dexflows."""
