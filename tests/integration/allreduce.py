"""An MPI program without a compiler: each process adds a digit of its own to a sum that all get.

It is not imported: tests hand it to `mpirun` as text.
"""

import ctypes
import os

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)


def constant(name: str) -> object:
    """What a C program calls MPI_COMM_WORLD, MPI_INT, ..., in the words of Open MPI's mpi.h."""
    return ctypes.byref(ctypes.c_char.in_dll(mpi, name))


world = constant("ompi_mpi_comm_world")
rank, total = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mine = ctypes.c_int(10**rank.value)
mpi.MPI_Allreduce(
    ctypes.byref(mine),
    ctypes.byref(total),
    1,
    constant("ompi_mpi_int"),
    constant("ompi_mpi_op_sum"),
    world,
)
print(f"process {rank.value} on {os.uname().nodename}: {total.value}", flush=True)
mpi.MPI_Finalize()
