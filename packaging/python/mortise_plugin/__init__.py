"""Builds plugins of the mortise inference server: `python -m mortise_plugin build`."""
