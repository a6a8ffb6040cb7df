"""What memory does: one transaction each. Fetch, think with the domain, write."""
