"""One process with torch loaded, forked into kernels, ranks and the oracle: nobody waits for an import twice."""
