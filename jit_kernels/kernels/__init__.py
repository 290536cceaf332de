"""The operators, one a file; line 1 of each is its formula."""
