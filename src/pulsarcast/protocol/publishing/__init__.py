"""Publishing: own events, requests of other authors, and events for topics not followed here."""
