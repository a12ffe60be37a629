"""Where data come from: named sets and their publishers, and files and folders of one's own."""
