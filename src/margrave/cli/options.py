"""Options that several commands share, with LIBSVM's letters where it has them.

Defaults are those of the estimators: the options are None, and the help shows what that means.
"""

from __future__ import annotations

from typing import Annotated

import typer
from typer.models import OptionInfo

from margrave.estimators import SVC, SVR, NuSVC


def _default(name: str, kind: type[SVC] | type[SVR] | type[NuSVC] = SVC) -> str:
    """The default of a parameter, for the help."""
    value = kind().get_params(deep=False)[name]
    return value if isinstance(value, str) else f"{value:g}"


def _output(default: str) -> OptionInfo:
    option: OptionInfo = typer.Option(
        "-o", "--output", metavar="FILE", help="file to write", show_default=default
    )
    return option


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="LIBSVM text (.gz .bz2 .xz), CSV, Parquet, .npy, .npz; - for standard input",
        show_default=False,
    ),
]
Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="model file of any format", show_default=False)
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="COLUMN",
        help="label column of a table, by name or position",
        show_default="label, target, class or y",
    ),
]
Output = Annotated[str | None, _output("DATA.margrave")]
Predictions = Annotated[str | None, _output("standard output")]
Page = Annotated[str | None, _output("MODEL.html")]
Estimator = Annotated[
    str,
    typer.Option(
        "-s",
        "--estimator",
        metavar="NAME",
        help="0 SVC, 1 NuSVC, 2 OneClassSVM, 3 SVR, 4 NuSVR, or any estimator by name",
    ),
]
KernelName = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--kernel",
        metavar="NAME",
        help="0 linear, 1 poly, 2 rbf, 3 sigmoid, 4 precomputed, or any kernel by name",
        show_default="rbf",
    ),
]
Penalty = Annotated[
    float | None,
    typer.Option(
        "-c", "--C", metavar="NUMBER", help="penalty parameter C", show_default=_default("C")
    ),
]
Gamma = Annotated[
    str | None,
    typer.Option(
        "-g",
        "--gamma",
        metavar="NUMBER",
        help="gamma of the kernel: a number, scale or auto",
        show_default=_default("gamma"),
    ),
]
Degree = Annotated[
    int | None,
    typer.Option(
        "-d",
        "--degree",
        metavar="NUMBER",
        help="degree of the poly kernel",
        show_default=_default("degree"),
    ),
]
Coef0 = Annotated[
    float | None,
    typer.Option(
        "-r",
        "--coef0",
        metavar="NUMBER",
        help="coef0 of poly and sigmoid",
        show_default=_default("coef0"),
    ),
]
Nu = Annotated[
    float | None,
    typer.Option(
        "-n",
        "--nu",
        metavar="NUMBER",
        help="nu of NuSVC, OneClassSVM, NuSVR",
        show_default=_default("nu", NuSVC),
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        "-p",
        "--epsilon",
        metavar="NUMBER",
        help="epsilon of SVR's loss",
        show_default=_default("epsilon", SVR),
    ),
]
Tol = Annotated[
    float | None,
    typer.Option(
        "-e",
        "--tol",
        metavar="NUMBER",
        help="relative duality gap to stop at",
        show_default=_default("tol"),
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--memory",
        metavar="SIZE",
        help="memory limit: in MB, or e.g. 4GiB",
        show_default="half of what is free",
    ),
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
    typer.Option(
        "--weight", metavar="LABEL=W", help="multiply C by W for a class; also as -wLABEL W"
    ),
]
Scale = Annotated[
    str,
    typer.Option("--scale", metavar="NAME", help="minmax, standard or none; saved with the model"),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="any other parameter; may be repeated"),
]
Solver = Annotated[
    str | None,
    typer.Option("--solver", metavar="NAME", help="solver by name", show_default="auto"),
]
Engine = Annotated[
    str | None,
    typer.Option("--engine", metavar="NAME", help="threads, cuda, dask, dask://..., mpi"),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit", metavar="SECONDS", help="stop then, and keep the best model so far"
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="margrave, libsvm, liblinear, or auto: by the ending of the file",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option("-j", "--jobs", metavar="N", help="threads", show_default="all cores"),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="no progress bar, no summary")]
