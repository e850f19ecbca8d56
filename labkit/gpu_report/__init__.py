"""What a host with GPUs can tell about labkit in a quarter of an hour: tests, times beside forecasts, lessons."""
