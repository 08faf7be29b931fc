"""What everything else stands on: files, locks, fingerprints, intervals, progress, devices. Knows nothing of attacks."""
