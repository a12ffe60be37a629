"""Pages as HTML text: the page, its elements, and numbers as a sentence has them."""
