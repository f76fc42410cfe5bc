"""Text out of files, chunks out of text, and a small BM25 over the chunks."""
