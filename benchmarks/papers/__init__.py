"""The papers' tables, repeated: the methods of this library next to the published numbers."""
