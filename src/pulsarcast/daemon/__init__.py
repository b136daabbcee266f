"""The daemon: a node as a process, with settings, an HTTP API, meters and a page."""
