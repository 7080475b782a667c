"""Windows: spans of commit time that are read in shares, by readers that know nothing of each other. Pure."""

from connector.core.windows.closing import Closed, closed
from connector.core.windows.planning import WindowPace, deal, next_window
from connector.core.windows.repeats import without_repeats
from connector.core.windows.window import Share, ShareReport, Window

__all__ = ["Closed", "Share", "ShareReport", "Window", "WindowPace", "closed", "deal", "next_window", "without_repeats"]
