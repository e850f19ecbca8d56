// The lanes and categories that code speaks of by number (labkit/timeline/span.py, labkit/widgets/palette.py).

export const COMPUTE = 0;
export const COMMUNICATION = 1;
export const HOST = 2;
export const REGION = 3; // names given to stretches of time: brackets, in no number

export const COLLECTIVE = 3;
export const OPTIMIZER = 5;
export const BLOCKED = 6; // time in which a rank stands still and nothing moves
