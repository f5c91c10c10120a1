"""CPU seconds of this process; its own arithmetic is counted apart from the kernel's work for it."""

from __future__ import annotations

import dataclasses
import resource


@dataclasses.dataclass(frozen=True, kw_only=True)
class CpuTime:
    """CPU seconds of all threads together.

    Attributes:
        user: In the program itself.
        kernel: In the kernel on its behalf: mapping and zeroing memory, files, scheduling.
    """

    user: float
    kernel: float

    @classmethod
    def now(cls) -> CpuTime:
        """CPU time since the process began."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return cls(user=used.ru_utime, kernel=used.ru_stime)

    @classmethod
    def since(cls, before: CpuTime) -> CpuTime:
        """CPU time since `before` was read."""
        now = cls.now()
        return cls(user=now.user - before.user, kernel=now.kernel - before.kernel)

    def named(self, prefix: str) -> dict[str, float]:
        """`{prefix}_user_seconds` and `{prefix}_kernel_seconds`."""
        return {f"{prefix}_user_seconds": round(self.user, 2), f"{prefix}_kernel_seconds": round(self.kernel, 2)}
