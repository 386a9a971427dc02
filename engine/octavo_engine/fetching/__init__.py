"""Model files from a hub: exactly those of one commit, each verified, or none."""
