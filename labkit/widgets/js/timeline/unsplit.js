// A run whose streams have rows of their own, and the same run with a row for each lane, which numbers are read off.

/** The run with a row for each lane; of any other that itself. */
export const unsplit = (run) => run.lanesOf ?? run;

/** The name of the stream that an event ran on, "" where none is known. */
export const streamOf = ({ streams, stream }, event) => (streams && streams[stream[event] - 1]) || "";

/** The number that an event has in the run that is shown. */
export const shownEvent = ({ placeOf }, event) => (placeOf ? placeOf[event] : event);
