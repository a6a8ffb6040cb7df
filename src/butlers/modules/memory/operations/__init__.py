"""Operations on memory; each runs in one transaction: fetch rows, decide with the domain, write."""
