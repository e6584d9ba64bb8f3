"""Store models that were fitted to bucketized releases, and read them back from the cache or a file of parameters.

A model says with which probability each record has each sensitive value that its bucket lists. A completed table of a
model is a copy of the release in which each record has one such value, drawn by these probabilities.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlglot import exp

from privsql import system
from privsql.answers.answer import DRAWN_COLUMNS, MODEL_VERSION, AttachedModel
from privsql.engine.files import Folder, sweep_folders, unused_name
from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import Holes, alias_as, all_rows, column, fill, table, temp_table
from privsql.errors import EngineError, InfeasibleError, PrivsqlError, UsageError
from privsql.releases.draft import digest_table

if TYPE_CHECKING:
    from privsql.answers.bucket_model import Beliefs, BucketModel
    from privsql.engine.database import Container, Reporter
    from privsql.model.arrays import ReleaseArrays
    from privsql.releases.contents import AttachedRelease

# Parameters -----------------------------------------------------------------------------------------------------------
# A model as it is handed on: its parameters alone, as JSON. The reader's machine computes the beliefs anew.

MOST_BYTES = 2**28  # of a file of parameters
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class StoredArray(BaseModel):
    """An array of numbers in JSON: its type, its shape, and its little-endian bytes in base64."""

    model_config = ConfigDict(extra="forbid", strict=True)
    type: Literal["<f4", "<f8"]
    shape: tuple[Annotated[int, Field(ge=0)], ...]
    data: str

    @staticmethod
    def from_array(array: np.ndarray[Any, Any]) -> StoredArray:
        """Encode an array in base64."""
        kind: Literal["<f4", "<f8"] = "<f4" if array.dtype == np.float32 else "<f8"
        content = np.ascontiguousarray(array, dtype=kind).tobytes()
        return StoredArray(type=kind, shape=tuple(array.shape), data=base64.b64encode(content).decode("ascii"))

    def as_array(self) -> np.ndarray[Any, Any]:
        """Decode the array.

        Raises:
            ValueError: The bytes do not have the stated number of entries.
        """
        content = np.frombuffer(base64.b64decode(self.data, validate=True), dtype=self.type)
        return content.reshape(self.shape).astype(np.float64)


class ModelParameters(BaseModel):
    """The parameters of a fitted model, as ``privsql fit --to`` writes them.

    Attributes:
        release: The name of the release.
        digest: The SHA-256 of the tables to which the model was fitted.
        version: The version of the model's format; a model of another version is not used.
        arrays: The arrays of the model by name, such as the effects of quasi-identifiers.
        facts: The other parameters by name.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    release: str
    digest: Digest
    version: int
    arrays: dict[str, StoredArray]
    facts: dict[str, Any]

    @staticmethod
    def read(path: Path) -> ModelParameters:
        """Read the parameters from a file.

        Raises:
            EngineError: The file can't be read, is too large, or holds no model.
        """
        try:
            if path.stat().st_size > MOST_BYTES:
                raise EngineError(f"{path}: too large for a model")
            return ModelParameters.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no model that privsql fit wrote"
            raise EngineError(f"{path}: {why}") from error

    def write(self, path: Path) -> None:
        """Write the parameters to a new file.

        Raises:
            UsageError: The path exists.
            EngineError: The file can't be written.
        """
        try:
            with path.open("x") as file:
                file.write(self.model_dump_json())
        except FileExistsError as error:
            raise UsageError(f"{path} exists; choose another place for the model") from error
        except OSError as error:
            raise EngineError(f"{path}: {error.strerror}") from error


def state_parameters(release: str, digest: str, model: BucketModel) -> ModelParameters:
    """Return the parameters of a fitted model.

    Args:
        release: The name of the release.
        digest: The SHA-256 of its tables.
        model: The model.
    """
    stated = model.parameters()
    arrays = {name: StoredArray.from_array(one) for name, one in stated.items() if isinstance(one, np.ndarray)}
    facts = {name: one for name, one in stated.items() if name not in arrays}
    return ModelParameters(release=release, digest=digest, version=MODEL_VERSION, arrays=arrays, facts=facts)


def restore_from(parameters: ModelParameters, arrays: ReleaseArrays, digest: str) -> BucketModel:
    """Rebuild the model of a release from parameters that an untrusted person may have written.

    Args:
        parameters: The parameters.
        arrays: The release.
        digest: The SHA-256 of its tables.

    Raises:
        UsageError: The parameters are damaged, or belong to other tables or to another version of the model.
        GuaranteeError: The parameters are impossible for this release.
    """
    from privsql.answers.bucket_model import restore_model

    if parameters.digest != digest:
        raise UsageError("the model is of other tables than this release has; run privsql fit anew")
    if parameters.version != MODEL_VERSION:
        raise UsageError("the model was made by another version of privsql; run privsql fit anew")
    try:
        numbers = {name: one.as_array() for name, one in parameters.arrays.items()}
    except ValueError as error:
        raise UsageError(f"the model is damaged: {error}") from error
    return restore_model(arrays, parameters.facts | numbers, digest)


# Records and digests --------------------------------------------------------------------------------------------------
# The tables that a model is fitted to. A record's number is its place in QIT.

RECORDS, NUMBERED = "modelled", "numbered"  # QIT if it is not a plain table, and QIT with the numbers of its records


@dataclass(frozen=True)
class NumberedRecords:
    """The tables QIT and ST of an open bucketized release, with a number for each record.

    By its number, a record of QIT is joined with its rows in the tables of a model.

    Attributes:
        db: The session that has the release.
        tables: QIT and ST as they are stored.
        number: The name of the column with the record's number in view ``NUMBERED``.
    """

    db: Container
    tables: tuple[exp.Table, exp.Table]
    number: str

    @staticmethod
    def find(release: AttachedRelease) -> NumberedRecords:
        """Number the records of a release in stored order.

        The tables of a folder or a schema are copied first.
        """
        db, tables = release.db, []
        plain = {name for kind, _, name, _ in db.list_relations(release.database) if kind == "table"}
        for name in ("qit", "st"):
            place = table(name, release.database)
            if name not in plain:
                db.create_table(f"{RECORDS}_{name}", all_rows(place))
                place = temp_table(f"{RECORDS}_{name}")
            tables.append(place)
        number = unused_name("record", [field.name for field in db.list_fields(tables[0])])
        star = exp.Column(this=exp.Star(), table=exp.to_identifier("r"))
        numbered = exp.select(alias_as(db.row_number("r"), number), star).from_(tables[0].as_("r"))
        db.create_view(NUMBERED, numbered)
        return NumberedRecords(db, (tables[0], tables[1]), number)

    def digest(self) -> str:
        """Return the SHA-256 of tables QIT and ST together; the cache finds the model of the release by it."""
        parts = [digest_table(self.db, one) for one in self.tables]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()


# Store ----------------------------------------------------------------------------------------------------------------
# Models in the user's cache (``PRIVSQL_CACHE``): a database file with the parameters and the beliefs that follow.

VARIABLE = "PRIVSQL_CACHE"
FITTING = "PRIVSQL_FIT"
OFF = "off"
MOST_SECONDS = 15.0  # of a fit that the first query begins by itself
ENDING, MODEL = ".model", "model"  # of the files, and the name under which the database is attached
WEIGHTS, COMPLETED = "weights", "completed"  # its tables
DRAFT = ".fit-"  # begins the name of a folder in which a model is written
MOST_MODELS = 40  # files; the oldest ones go
TOLERANCE = 1e-6  # of sums of probabilities


def cache_folder() -> Path | None:
    """Return the folder of cached models; None if the cache is switched off or the system has no place for it."""
    setting = os.environ.get(VARIABLE)
    if setting == OFF:
        return None
    return Path(setting).expanduser() if setting else system.user_folder("CACHE")


def fits_by_itself(seconds: float | None) -> bool:
    """Return whether the first query may fit a model although nobody asks for it.

    Args:
        seconds: How long the fit is predicted to take; None if no model can be fitted.
    """
    quick = seconds is not None and seconds <= MOST_SECONDS
    return quick and os.environ.get(FITTING) != OFF and cache_folder() is not None


def list_models() -> dict[str, Path]:
    """Return the files of all cached models, by the digest of the tables to which each was fitted."""
    folder = cache_folder()
    if folder is None or not folder.is_dir():
        return {}
    return {one.stem: one for one in folder.glob(f"*{ENDING}") if _is_private(one)}


def _is_private(path: Path) -> bool:
    """Return whether a path is a regular file that belongs to this user; a link does not count as one."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and system.is_users_file(status)


def fit_model(
    release: AttachedRelease, digest: str, report: Reporter
) -> tuple[ReleaseArrays, BucketModel, ModelParameters]:
    """Fit a model to a release.

    Args:
        release: The release.
        digest: The SHA-256 of its tables.
        report: Shows the progress of the fit.

    Returns:
        The arrays to which the model was fitted, the model, and its parameters.

    Raises:
        InfeasibleError: The fit does not converge.
    """
    from privsql.answers.bucket_model import fit_bucket_model

    arrays = release.read_arrays()
    seconds = release.mechanism.answers(release.db, release.manifest).predict_fit() or 0.0
    report.start_step(f"Fitting the model, about {max(seconds, 1):,.0f} s")
    model = fit_bucket_model(arrays, digest, lambda done: report.update(100 * done))
    if not model.converged:
        raise InfeasibleError("the fit of a model to this release does not converge; its answers are linear")
    return arrays, model, state_parameters(release.manifest.name, digest, model)


def store_model(arrays: ReleaseArrays, beliefs: Beliefs, parameters: ModelParameters) -> Path | None:
    """Write a model into the user's cache, and remove the oldest models if the cache is full.

    Args:
        arrays: The arrays to which the model was fitted.
        beliefs: The model's probabilities of values for each record, and its completed tables (copies of the release
            with a drawn value for each record).
        parameters: The parameters of the model.

    Returns:
        The file; None if there is no cache.

    Raises:
        EngineError: The cache can't be written.
    """
    folder = cache_folder()
    if folder is None:
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep_folders(DRAFT, folder)
        with Folder(DRAFT, folder) as draft, open_scratch() as db:
            file = draft / f"{parameters.digest}{ENDING}"
            db.attach(file, MODEL, read_only=False)
            stated = pa.table({"content": [parameters.model_dump_json()]})
            contents = {"parameters": stated, WEIGHTS: list_beliefs(arrays, beliefs), COMPLETED: list_draws(beliefs)}
            for title, content in contents.items():
                db.register_arrow(title, content)
                db.create_table(title, all_rows(temp_table(title)), into=MODEL)
            db.detach(MODEL)
            file.replace(folder / file.name)
    except OSError as error:
        raise EngineError(f"{folder}: {error.strerror}; PRIVSQL_CACHE names another folder") from error
    for old in sorted(list_models().values(), key=lambda one: one.stat().st_mtime)[:-MOST_MODELS]:
        with suppress(OSError):
            old.unlink()
    return folder / file.name


def list_beliefs(arrays: ReleaseArrays, beliefs: Beliefs) -> pa.Table:
    """Return a table (record, bid, code, weight) of the model's probability of each value for each record.

    ``weight`` is the probability that the record, whose bucket is ``bid``, has the sensitive value number ``code``.
    """
    order = np.argsort(beliefs.value, kind="stable")  # a question of few values reads few blocks
    record, code = beliefs.record[order].astype(np.int32), beliefs.value[order].astype(np.int32)
    columns: dict[str, Any] = {"record": record, "bid": arrays.bucket[record].astype(np.int32), "code": code}
    return pa.table(columns | {"weight": beliefs.weight[order]})


def list_draws(beliefs: Beliefs) -> pa.Table:
    """Return a table (record, drawn_0, ..) of the sensitive values that a model has drawn for each record.

    Each column ``drawn_`` belongs to one completed table, a copy of the release in which each record has one drawn
    value. Values are given by their numbers. The rows are in the order of the records.
    """
    kind = np.uint8 if beliefs.value.max(initial=0) < 2**8 else np.uint16
    records = beliefs.record[beliefs.drawn[:, 0]].astype(np.int32)
    drawn = zip(DRAWN_COLUMNS, beliefs.drawn.T, strict=True)
    return pa.table({"record": records, **{name: beliefs.value[chosen].astype(kind) for name, chosen in drawn}})


def find_model(release: AttachedRelease) -> Path | None:
    """Return the cached file with the model of a release; None if the cache has none."""
    models = list_models()
    return models.get(NumberedRecords.find(release).digest()) if models else None


def take_model(release: AttachedRelease, path: Path) -> AttachedModel | None:
    """Attach the model in a file of the cache.

    Returns:
        The model; None if the file is damaged, or holds no model of this release in this version.
    """
    records = NumberedRecords.find(release)
    if path.stem != records.digest():
        return None
    weights, completed = table(WEIGHTS, MODEL), table(COMPLETED, MODEL)
    holes: Holes = {
        "weights": weights,
        "completed": completed,
        "tolerance": exp.Literal.number(TOLERANCE),
        "drawn": exp.Array(expressions=[column(name) for name in DRAWN_COLUMNS]),
    }
    sums = fill("duckdb/model_sums", holes)
    try:
        release.db.attach(path, MODEL, read_only=True)
        parameters = ModelParameters.model_validate_json(release.db.rows(all_rows(table("parameters", MODEL)))[0][0])
        wrong = parameters.version != MODEL_VERSION or sum(release.db.rows(sums)[0])
    except (PrivsqlError, ValidationError, LookupError):  # what is damaged is no model, and fit writes it anew
        return None
    return None if wrong else AttachedModel(weights, completed, NUMBERED, records.number)
