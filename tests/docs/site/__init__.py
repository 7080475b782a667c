"""The pages as a site: built without a warning, and read whole on a desktop and on a phone."""
