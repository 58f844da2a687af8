"""Model: the nouns that every room shares. Imports nothing of ours and touches no world."""
