// The lanes and categories that code speaks of by number (labkit/timeline/span.py, labkit/widgets/palette.py).

export const COMPUTE = 0;
export const COMMUNICATION = 1;
export const HOST = 2;
export const REGION = 3; // names given to stretches of time: brackets, in no number

export const COLLECTIVE = 3;
export const SEND = 4;
export const OPTIMIZER = 5;
/** Whether a call of these names moves bytes within a device, and computes nothing. */
export const isCopy = ([name]) => /^copy_?$/.test(name);

export const BLOCKED = 6; // time in which a rank stands still and nothing moves

export const RECEIVE = 7;

/** [name, kind, category, peer, source, code] of an event. */
export const labelOf = ({ labels, label }, event) => labels[label[event]];

/** Whether it is known when a run's ranks compute: of real processes it is not. */
export const isKnownOf = ({ rows }) => rows.some(({ lane }) => lane === COMPUTE);
