"""Every limit of grading in one place, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Limits:
    """What one submission may use; nothing here depends on how fast the machine happens to be, save the seconds.

    Attributes:
        notebook_bytes: A larger submission is not read. Notebooks with pictures reach a few MB.
        notebook_depth: Nesting of its JSON.
        notebook_cells: Number of its cells.
        cell_source_bytes: Source of one exercise cell.
        cell_seconds: One cell of the executed notebook, then it is interrupted.
        grace_seconds: What an interrupted cell has to end by itself.
        notebook_seconds: The whole executed notebook, then its kernel is ended.
        cell_output_bytes: Output of one cell that is kept; the rest is dropped and counted.
        flood_bytes: Output of one cell after which it is interrupted.
        kernel_processes: Processes and threads of the executed notebook.
        kernel_file_bytes: Largest file it may write.
        kernel_memory_bytes: Memory of the notebook's whole process tree together.
        kernel_message_bytes: One message of the kernel to us; it is not read where it is larger.
        reader_memory_bytes: Memory of the process that reads them; past that it ends, and the notebook with it.
        scratch_bytes: Size of a sandbox's /tmp, and of its /dev/shm.
        open_files: Descriptors of one process.
        case_seconds: One hidden case, start of its ranks included.
        retry_seconds: The second and last try of a case that ran out of time, alone.
        probe_seconds: All hidden cases of a submission together.
        rank_cpu_seconds: Processor time of one rank in one case.
        rank_memory_bytes: Address space a rank may add to what the loaded torch already has.
        rank_processes: Processes and threads of one rank.
        rank_scratch_bytes: Size of a rank's /tmp, and of its /dev/shm.
        case_memory_bytes: Memory of all ranks of a case together.
        rank_file_bytes: Largest file a rank may write.
        rank_output_bytes: What a rank prints that is kept.
        rank_flood_bytes: What a rank prints after which it is ended.
        result_bytes: A rank's result.
        message_bytes: One message between ranks.
        case_message_bytes: All messages of a case that are in flight together.
        case_messages: Posts (sends, receives, collectives) of all ranks in a case.
    """

    notebook_bytes: int = 25 << 20
    notebook_depth: int = 60
    notebook_cells: int = 2000
    cell_source_bytes: int = 256 << 10
    cell_seconds: float = 60.0
    grace_seconds: float = 3.0
    notebook_seconds: float = 300.0
    cell_output_bytes: int = 64 << 10
    flood_bytes: int = 8 << 20
    kernel_processes: int = 1024
    kernel_file_bytes: int = 256 << 20
    kernel_memory_bytes: int = 6 << 30
    kernel_message_bytes: int = 8 << 20
    reader_memory_bytes: int = 640 << 20
    scratch_bytes: int = 256 << 20
    open_files: int = 1024
    case_seconds: float = 10.0
    retry_seconds: float = 25.0
    probe_seconds: float = 300.0
    rank_cpu_seconds: int = 30
    rank_memory_bytes: int = 4 << 30
    rank_processes: int = 128
    rank_scratch_bytes: int = 64 << 20
    case_memory_bytes: int = 6 << 30
    rank_file_bytes: int = 64 << 20
    rank_output_bytes: int = 16 << 10
    rank_flood_bytes: int = 32 << 20
    result_bytes: int = 16 << 20
    message_bytes: int = 16 << 20
    case_message_bytes: int = 128 << 20
    case_messages: int = 200_000

    def on_gpu(self) -> Limits:
        """Return what a submission may use whose ranks share a GPU: each loads CUDA, which takes time and memory.

        Nobody has measured how much of either; the room is ample on purpose.
        """
        return replace(
            self, case_seconds=60.0, retry_seconds=120.0, probe_seconds=1200.0, rank_cpu_seconds=120,
            case_memory_bytes=24 << 30,
        )  # fmt: skip
