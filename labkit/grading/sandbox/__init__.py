"""What a submission is confined by: bubblewrap, namespaces, limits on processes and memory, and what it may see."""
