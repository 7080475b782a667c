"""The pages: their links and their fenced blocks."""
