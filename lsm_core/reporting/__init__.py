"""Published results beside ours, as tables, figures and pages."""
