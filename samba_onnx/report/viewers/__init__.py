"""A report for viewers that others make: graphs for Model Explorer, traces for Perfetto, figures of matplotlib."""
