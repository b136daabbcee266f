"""What the testbed can play, each with its own load and its own judgement."""
