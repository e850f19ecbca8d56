"""What labkit claims of itself on GPUs; the tests marked gpu1 and gpu2 try each, and so does `labkit gpu-report`."""

from labkit.gpu_report.claims import messages as _messages
from labkit.gpu_report.claims import ranks as _ranks
from labkit.gpu_report.claims import records as _records
from labkit.gpu_report.claims.claim import CLAIMS as CLAIMS
from labkit.gpu_report.claims.claim import Claim as Claim
from labkit.gpu_report.claims.claim import DoesNotHold as DoesNotHold
from labkit.gpu_report.claims.claim import Place as Place
from labkit.gpu_report.claims.claim import claim as claim
from labkit.gpu_report.claims.claim import hold as hold

del _messages, _ranks, _records
