"""Options that several commands share, with LIBSVM's letters where it has them."""

from __future__ import annotations

from typing import Annotated

import typer

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="LIBSVM text (.gz .bz2 .xz), CSV, Parquet, .npy, .npz")
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="model file")]
Label = Annotated[str | None, typer.Option("--label", help="label column, by name or position")]
Output = Annotated[str | None, typer.Option("-o", "--output", help="file to write")]
Estimator = Annotated[
    str,
    typer.Option(
        "-s",
        "--estimator",
        help="0 SVC, 1 NuSVC, 2 OneClassSVM, 3 SVR, 4 NuSVR, or any estimator by name",
    ),
]
KernelName = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--kernel",
        help="0 linear, 1 poly, 2 rbf, 3 sigmoid, 4 precomputed, or any kernel by name",
    ),
]
Penalty = Annotated[float | None, typer.Option("-c", "--C", help="penalty parameter C")]
Gamma = Annotated[str | None, typer.Option("-g", "--gamma", help="number, scale or auto")]
Degree = Annotated[int | None, typer.Option("-d", "--degree", help="degree of the poly kernel")]
Coef0 = Annotated[float | None, typer.Option("-r", "--coef0", help="coef0 of poly and sigmoid")]
Nu = Annotated[float | None, typer.Option("-n", "--nu", help="nu of NuSVC, OneClassSVM, NuSVR")]
Epsilon = Annotated[float | None, typer.Option("-p", "--epsilon", help="epsilon of SVR's loss")]
Tol = Annotated[float | None, typer.Option("-e", "--tol", help="relative duality gap to stop at")]
Memory = Annotated[str | None, typer.Option("-m", "--memory", help="cache size: MB, or e.g. 4GiB")]
Shrinking = Annotated[
    int | None, typer.Option("-h", hidden=True, help="LIBSVM's shrinking; not needed")
]
Probabilities = Annotated[
    bool,
    typer.Option(
        "--probabilities",
        help="also fit probabilities to cross-validated scores, saved with the model",
    ),
]
Probability = Annotated[int, typer.Option("-b", hidden=True, help="LIBSVM's --probabilities")]
Weight = Annotated[
    list[str] | None,
    typer.Option("--weight", help="LABEL=W: multiply C by W for a class; also -wLABEL W"),
]
Scale = Annotated[
    str, typer.Option("--scale", help="minmax, standard or none; saved with the model")
]
Set = Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE: any other parameter")]
Solver = Annotated[
    str | None, typer.Option("--solver", help="solver; chosen automatically by default")
]
Engine = Annotated[
    str | None, typer.Option("--engine", help="threads, cuda, dask, dask://..., mpi")
]
Jobs = Annotated[int | None, typer.Option("-j", "--jobs", help="threads; all cores by default")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="no progress bar, no summary")]
