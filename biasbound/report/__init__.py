"""Rows made visible: tables, figures and a page."""
