"""The studio on the network: its server, what guards it, and how much it takes."""
