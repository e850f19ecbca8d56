// What a collective costs on links of one latency and bandwidth.

/** Seconds of an all_reduce, or of an all_gather of what every rank sends, in a ring. */
export function collective(numBytes, { ranks, latency, bandwidth }, gathered) {
  if (gathered) return (ranks - 1) * (latency + numBytes / bandwidth);
  return 2 * (ranks - 1) * (latency + numBytes / ranks / bandwidth);
}
