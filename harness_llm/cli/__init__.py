"""The command line: declarations of the commands and of their options, and the commands."""
