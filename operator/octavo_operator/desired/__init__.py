"""Pure builders of what should exist, one file per kind; each returns a manifest for server-side apply."""
