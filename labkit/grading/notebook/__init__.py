"""The notebook of a submission: rebuilt on the pristine one, run by papermill in a confined kernel."""
