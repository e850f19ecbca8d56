"""Measuring a host, so that labkit.virtual(gpu=...) predicts what runs on it."""

from labkit.calibration.host import as_text as as_text
from labkit.calibration.host import assemble as assemble
from labkit.calibration.host import calibrate as calibrate
from labkit.calibration.host import gather as gather
