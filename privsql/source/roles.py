"""Propose a role for every column of a source from its values; the name of a column only decides doubtful cases.

A column that outsiders are likely to know becomes a quasi-identifier. The publisher is asked about two kinds of
columns: those that may do harm by themselves, and those whose values do not show a role. All other columns are left
out, each with a reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from math import floor, log10
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.source.look import Column, agree_within, follows_from, guess_share, signature

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Names ----------------------------------------------------------------------------------------------------------------
# Words of a column's name. Values decide first: a column called id whose values repeat identifies nobody.

# Splits patient.id, PatientId and 'Patient ID' into the same words.
BETWEEN = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+")
OWNERS = (
    "case|client|customer|donor|employee|inmate|member|p|participant|pat|patient|person|pers|pupil|resident|respondent|"
    "staff|student|subj|subject|tenant|u|user|usubj|victim|visitor|voter|worker"
)


def _words(*words: str) -> re.Pattern[str]:
    return re.compile(rf"(^|_)({'|'.join(words)})s?($|_)", re.IGNORECASE)


NAMES_RECORD = _words(
    rf"(({OWNERS}|child|record|row|visit|order|loan|account|acct|study|unique)_?)?(id|uid)",
    rf"({OWNERS}|row|record|account|acct)_?(key|no|nr|num|number)",
    "uuid", "guid", "key",
)  # fmt: skip
PERSONAL = _words(rf"({OWNERS})_?(id|key|nr|num|number)", "ssn", "nhs", "mrn", "usubjid", "pidp")
NAMES_PEOPLE = _words(
    "((first|full|last|family|given|middle|sur|user|nick|maiden|father|mother|patient|customer)_?)?names?",
    "licen[cs]e_?(no|nr|num|number|plate)", "e_?mail", "phone", "mobile", "telephone", "fax", "ssn", "nhs", "mrn",
    "iban", "passport", "address", "street", "url", "ip", "ip_?address", "login", "handle",
)  # fmt: skip
WEIGHT = re.compile(
    r"(^|_)([a-z]*we?i?ghts?[0-9]*|wgt[a-z0-9]*|wt[a-z0-9]*|[a-z]*wgt|[a-z]+wt[0-9]*)($|_)", re.IGNORECASE
)
AGE = _words(
    "age",
    "ages",
    "aged",
    "alter",
    "edad",
    "idade",
    "eta",
    "leeftijd",
    "age_?(years|yrs|yr|y|at_.*)",
    "years_?old",
    "agey",
)
POSTAL = re.compile(r"(^|_)(zip[a-z]*[0-9]?|postal|post_?code|postcode|plz|cp)($|_)", re.IGNORECASE)
KNOWN = re.compile(
    r"(^|_)(sex|gender|male|female|age|race|racial|hispanic|ethnic[a-z]*|nationality|national[a-z]*|nativity|citizen[a-z]*|country|countries|state|"
    r"region[a-z]*|province|county|counties|district|borough|municipality|canton|kanton|prefecture|city|cities|town|village|urban|rural|"
    r"area|zone|location|zip[a-z]*|postal|postcode|plz|birth[a-z]*|born|dob|marital[a-z]*|marriage|married|relationship|spouse|"
    r"family|household|hh_?size|children|kids|sibling[a-z]*|parents?|dependents?|educ[a-z]*|school[a-z]*|degree|college|"
    r"university|major|qualification|job[a-z]*|occup[a-z]*|profession[a-z]*|employ[a-z]*|employer|industry|sector|work|work_?class|"
    r"work_?type|department|dept|division|team|position|role|rank|title|seniority|tenure|language|veteran|military|home[a-z]*|"
    r"hous(e|ing)[a-z]*|residence|residen[a-z]*|tenant|owner[a-z]*|ownership|property|vehicle[a-z]*|car|cars|make|body|"
    r"height|hand(ed)?|year|month|weekday|day_?of_?week|quarter|season|term|semester|cohort|wave|class|hospital|ward|clinic|site|"
    r"cent(er|re)|facility|provider|store|shop|branch|station|airport|admission_?type|visit|visits|hour|hours|weather|"
    r"light(ing)?|road|street_?type|surface|seat(ing)?|passenger[a-z]*|driver|helmet|belt|purpose|product|channel|brand|club|league)($|_)",
    re.IGNORECASE,
)
HARMFUL = re.compile(
    r"(^|_)(income[a-z]*|salar[a-z]*|wages?|pay|paid|payment|earn[a-z]*|bonus|debt[a-z]*|dti|credit[a-z]*|balance|bankrupt[a-z]*|default[a-z]*|"
    r"delinq[a-z]*|overdue|loan_?(amount|status)|wealth|assets?|net_?worth|poverty|poor|benefit[a-z]*|welfare|diagnos[a-z]*|"
    r"dx|disease[a-z]*|disorder[a-z]*|illness|ill|sick|condition|comorbid[a-z]*|symptom[a-z]*|infect[a-z]*|cancer|tumou?r|diabet[a-z]*|hiv|aids|"
    r"std|hepatitis|asthma|stroke|depress[a-z]*|anxiety|mental|suicid[a-z]*|disab[a-z]*|pregnan[a-z]*|abortion|fertil[a-z]*|"
    r"death|dead|died|deceased|mortality|survival|surviv[a-z]*|alive|vital_?status|cause|outcome|result[a-z]*|test|tested|positive|lab|"
    r"drug[a-z]*|medic[a-z]*|treatment|therapy|dose|smok[a-z]*|tobacco|alcohol|drink[a-z]*|cannabis|addict[a-z]*|crime|criminal|"
    r"offen[cs]e[a-z]*|arrest[a-z]*|convict[a-z]*|prison|jail|sentence|recidiv[a-z]*|violen[a-z]*|abuse|victim|fraud|grade[a-z]*|gpa|score[a-z]*|"
    r"exam|marks?|fail[a-z]*|passed|iq|rating|performance|religio[a-z]*|church|faith|politic[a-z]*|party|vote[a-z]*|orientation|"
    r"sexual[a-z]*|partner[a-z]*|injur[a-z]*|severity|fatal[a-z]*|adverse|serious[a-z]*|event|reaction|toxicity|bmi|obes[a-z]*|blood|"
    r"cholesterol|pressure|glucose|viral|lawsuit|complaint|disciplin[a-z]*|fired|layoff|attrition|churn|risk|penalty)($|_)",
    re.IGNORECASE,
)
IN_ORDER = _words(
    "visit", "wave", "round", "period", "year", "month", "quarter", "week", "day", "time", "seq(uence)?", "no", "nr",
    "num(ber)?", "order", "episode", "admission", "session", "encounter", "spell"
)  # fmt: skip
OF_A_VALUE = _words(  # dates that may depend on the sensitive value
    "death", "died", "dead", "deceased", "diagnos[a-z]*", "dx", "onset", "relapse[a-z]*", "recover[a-z]*", "outcome",
    "result", "default[a-z]*", "convict[a-z]*", "fail[a-z]*"
)  # fmt: skip
LIKE_A_PERSON = _words(
    "age", "sex", "gender", "race", "ethnic[a-z]*", "birth[a-z]*", "born", "dob", "nationality", "native[a-z]*"
)


def split_name(name: str) -> str:
    """Return the words of a column's name in lower case, joined by underscores."""
    return BETWEEN.sub("_", name)


def is_weight_name(name: str) -> bool:
    """Return whether a column's name suggests weights, be it of a survey or of bodies."""
    return bool(WEIGHT.search(split_name(name)))


def names_records_or_people(name: str) -> bool:
    """Return whether a column's name suggests that its values identify records or people."""
    words = split_name(name)
    return bool(NAMES_RECORD.search(words) or NAMES_PEOPLE.search(words))


# Roles ----------------------------------------------------------------------------------------------------------------

ONE_VALUE = 0.995  # a column tells nothing if one value has a larger share
NEARLY = 0.9  # values are nearly unique if this share of them differs
NAMED_FROM = 20  # a column called name, e-mail or phone names people if it has so many values
GUESSED, LIFT = 0.9, 0.5  # share of right guesses, and of avoided errors, that reveals a value
SAME = 0.95  # agreement of a person's records, beyond chance
MANY, MOST_EACH = 1.02, 200  # a person's mean number of records: least, and most
MOST_TEXTS, FEW_EACH = 100, 4  # more texts are no category if each has fewer records on average
DETERMINES = 400  # the most values of a column from which another follows
MOST_COMPARED = 200  # up to so many columns, all pairs are compared
FEW = 25  # a number with at most so many values is a category
WIDE = 150  # whole numbers in at most this range are a category
LONG_TAIL = 5  # the largest weight exceeds so many times the median
MOST_PUBLISHED = 15
MOST_CODES = 400  # a number with a known name is a code up to so many values
OLD = 90  # all higher ages are one value
CUT = 0.002  # share of records that is cut off at each end of a rounded number
WIDTH = 100  # width of bins of numeric postal codes


@dataclass
class Roles:
    """The roles that ``init`` proposes for the columns of a source.

    Attributes:
        sensitive: The sensitive column.
        id: The column that identifies records; None if there is none.
        person: The column that identifies persons with several records; None if there is none.
        weights: Published columns that may be the weights of a survey.
        published: The quasi-identifiers, in the order of the proposal, with their bins (None for no bins).
        asked: The columns that the publisher has to decide about, by the question.
        left_out: The reason why a column is not published, by the column.
        single: A column whose name says that it identifies persons, each of whom has one record; None if there is none.
        changing: The columns whose values often differ between the records of one person.
        rounded: Bins for numeric columns that the publisher is asked about, in case they are published.
    """

    sensitive: str | None = None
    id: str | None = None
    person: str | None = None
    weights: list[str] = field(default_factory=list)
    published: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, list[str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    single: str | None = None
    changing: list[str] = field(default_factory=list)
    rounded: dict[str, Any] = field(default_factory=dict)

    def ask(self, question: str, name: str) -> None:
        self.asked.setdefault(question, []).append(name)


def propose_roles(
    columns: Sequence[Column], sensitive: str, persons: Mapping[str, Sequence[Column]], person: str | None = None
) -> Roles:
    """Return proposed roles for the columns of a table with one sensitive column.

    Args:
        columns: A sample of the records: all columns that can be published, in the order of the source.
        sensitive: The name of the sensitive column, as the source spells it.
        persons: A second sample for each column that may identify persons: one that is unique in the first sample but
            not in the table. The second sample has all records of some values of this column, and all columns.
        person: The column that identifies persons, if the publisher names it; None to find it.
    """
    roles = Roles(sensitive=sensitive)
    secret = next(one for one in columns if one.name == sensitive)
    others = [one for one in columns if one.name != sensitive]
    open_columns = _name_records([one for one in others if one.name != person], roles, persons)
    if person is None:
        open_columns = _find_person(open_columns, roles, columns, persons)
    elif next(one for one in columns if one.name == person).is_unique and person not in persons:
        roles.single = person
    else:
        _take_person(person, roles, persons.get(person, columns))
    known: list[Column] = []
    rest: list[Column] = []
    for one in open_columns:
        if reason := _say_nothing(one) or _give_away(one, secret):
            roles.left_out[one.name] = reason
        else:
            (known if _is_known(one) else rest).append(one)
    kept = _leave_out_repeated(known + rest, roles)
    dates = 0
    for one in kept:
        dates += one.is_date
        role, bins = _judge(one, first_date=dates == 1)
        if role == "weight":
            roles.weights.append(one.name)
            roles.published[one.name] = None
        elif role == "published" and len(roles.published) - len(roles.weights) < MOST_PUBLISHED:
            roles.published[one.name] = bins
        else:
            roles.ask("more" if role == "published" else role, one.name)
            if isinstance(bins, dict) and "round" in bins:
                roles.rounded[one.name] = bins
    return roles


def _name_records(columns: Iterable[Column], roles: Roles, persons: Mapping[str, Sequence[Column]]) -> list[Column]:
    """Find the column that identifies records, and leave out others that identify records or people.

    Args:
        columns: The columns to look at.
        roles: Receives the id and the reasons for columns that are left out.
        persons: For each column that may identify persons, a second sample: all records of some values of this column.
            These columns always remain.

    Returns:
        The remaining columns.
    """
    rest = []
    for one in columns:
        words = split_name(one.name)
        if one.name in persons or POSTAL.search(words):
            rest.append(one)
        elif _is_id(one):
            if roles.id is None:
                roles.id = one.name
                roles.single = one.name if PERSONAL.search(words) else None
            else:
                roles.left_out[one.name] = "names records: each has its own"
        elif NAMES_PEOPLE.search(words) and one.different >= NAMED_FROM and not one.is_date:
            roles.left_out[one.name] = "names people"
        elif NAMES_RECORD.search(words) and one.is_unique and one.name not in persons and not one.is_date:
            roles.left_out[one.name] = "names records: each has its own"
        elif one.is_text and one.filled > NAMED_FROM and one.different >= NEARLY * one.filled:
            many = float(np.mean([len(text.split()) for text in one.texts[:1000]]))
            roles.left_out[one.name] = (
                "is free text" if many >= 3 else "names records or people: nearly each has its own"
            )
        else:
            rest.append(one)
    return rest


def _is_id(one: Column) -> bool:
    """Return whether a column gives each record its own id: a whole number of a sequence, a UUID, or a short text.

    A text is short if all are single words or all have one length.
    """
    if not one.is_unique or one.nulls or one.records < NAMED_FROM:
        return False
    if one.is_whole:
        numbers = one.sorted_numbers
        dense = numbers[-1] - numbers[0] < 1.5 * len(numbers)
        return bool(dense or NAMES_RECORD.search(split_name(one.name)))
    if one.type == "UUID":
        return True
    texts = one.texts[:1000] if one.is_text else []
    plain = all(len(text.split()) == 1 for text in texts) or len({len(text) for text in texts}) == 1
    return bool(texts) and plain and not NAMES_PEOPLE.search(split_name(one.name))


def _find_person(
    open_columns: list[Column], roles: Roles, columns: Sequence[Column], persons: Mapping[str, Sequence[Column]]
) -> list[Column]:
    """Find the column that identifies persons who have several records.

    In the records of one value of this column, at least two other columns must nearly always agree. One of these must
    be something that a person has for life.

    Args:
        open_columns: The columns without a role.
        roles: Receives the column, and questions about columns that may also be it.
        columns: All columns of the sample of records.
        persons: For each column that may identify persons, all columns of a second sample. It has all records of some
            values of this column, so that the records of one person can be compared.

    Returns:
        The columns that still have no role.
    """
    best: Column | None = None
    doubtful = []
    for one in open_columns:
        looked_at = persons.get(one.name, columns)
        group = next(other for other in looked_at if other.name == one.name)
        if not (group.is_whole or group.is_text or group.type == "UUID") or group.different < NAMED_FROM:
            continue
        if group.nulls or group.filled < MANY * group.different or group.different <= group.records / MOST_EACH:
            continue
        others = [other for other in looked_at if other.name != one.name and 1 < other.different < group.different]
        same = [other for other in others if agree_within(group.codes, other) >= SAME]
        if len(same) >= 2 and any(LIKE_A_PERSON.search(split_name(other.name)) for other in same):
            if best is None or one.different > best.different:
                best = one
        elif NAMES_RECORD.search(split_name(one.name)):
            doubtful.append(one)
    if best is not None:
        _take_person(best.name, roles, persons.get(best.name, columns))
    for one in doubtful:
        if one is not best:
            roles.ask("persons", one.name)
    return [one for one in open_columns if one is not best and one not in doubtful]


def _take_person(name: str, roles: Roles, looked_at: Sequence[Column]) -> None:
    """Give a column the role of identifying persons, and note in ``roles`` which columns change within a person.

    Args:
        name: The column.
        roles: The roles.
        looked_at: All columns of a sample with several records of each person.
    """
    roles.person = name
    group = next(other for other in looked_at if other.name == name)
    roles.changing = [other.name for other in looked_at if agree_within(group.codes, other) < SAME]


def find_basket(columns: Iterable[Column], sensitive: str) -> str | None:
    """Return the column that groups records into sets, such as the number of a shopping basket; None if there is none.

    It is the column with the most values among those whose values have several records each.
    """
    fitting = [one for one in columns if one.name != sensitive and (one.is_whole or one.is_text) and not one.nulls]
    fitting = [one for one in fitting if one.different >= NAMED_FROM and one.filled >= MANY * one.different]
    fitting = [one for one in fitting if one.different > one.records / MOST_EACH]
    return max(fitting, key=lambda one: one.different).name if fitting else None


def find_order(columns: Iterable[Column], roles: Roles) -> str | None:
    """Return the column that puts a person's records in order; None if there is none.

    It is a date, or the number of a visit or wave. Its value changes within persons, nearly every record has one, and
    it does not reveal the sensitive value.
    """
    changing = [one for one in columns if one.name in roles.changing and one.name != roles.sensitive]
    changing = [one for one in changing if not roles.left_out.get(one.name, "").startswith("gives ")]
    changing = [one for one in changing if one.filled >= NEARLY * one.records]
    changing = [one for one in changing if not OF_A_VALUE.search(split_name(one.name))]
    dates = [one.name for one in changing if one.is_date]
    numbered = [one.name for one in changing if one.is_whole and IN_ORDER.search(split_name(one.name))]
    return next(iter((*dates, *numbered)), None)


def _say_nothing(one: Column) -> str:
    value, share = one.most_frequent
    if one.different + (one.nulls > 0) < 2:
        return "has one value" if one.different or not one.nulls else "has no value"
    if share > ONE_VALUE:
        return f"is {'NULL' if value is None else repr(value)} in {share:.1%} of the records"
    if (
        one.is_text
        and one.different > max(MOST_TEXTS, one.filled / FEW_EACH)
        and not POSTAL.search(split_name(one.name))
    ):
        return f"has {one.different:,} texts, too many for a category; see columns.levels"
    return ""


def _give_away(one: Column, secret: Column) -> str:
    """Return why a column would reveal the sensitive column ``secret`` if it were published; empty if it would not."""
    guessed = secret.classes if is_amount(secret, categorical=False) else secret.codes
    right, base = max(guess_share(guessed, one.codes), guess_share(guessed, one.classes))
    if right >= GUESSED and right - base >= LIFT * (1 - base):
        return f"gives {secret.name} away: guessed right for {right:.0%} of the records, {base:.0%} without it"
    return ""


def _leave_out_repeated(columns: Sequence[Column], roles: Roles) -> list[Column]:
    """Leave out columns that add nothing to another column, and return the remaining columns.

    A column is left out if another column determines its values. Of columns whose values correspond one to one, the
    first is kept.

    Args:
        columns: The columns that could be published, with those that outsiders probably know first.
        roles: ``roles.left_out`` receives the reason for each column that is left out.
    """
    kept: list[Column] = []
    seen: dict[bytes, str] = {}
    for one in columns:
        mark = signature(one)
        if mark in seen:
            roles.left_out[one.name] = f"says the same as {seen[mark]}"
            continue
        seen[mark] = one.name
        kept.append(one)
    if len(kept) > MOST_COMPARED:
        return kept
    result = []
    for one in kept:
        source = next(
            (
                other
                for other in kept
                if other is not one
                and other.different <= DETERMINES
                and follows_from(one, other)
                and not _is_measure(other)
            ),
            None,
        )
        if source is not None:
            roles.left_out[one.name] = f"follows from {source.name}"
        else:
            result.append(one)
    return result


def _is_known(one: Column) -> bool:
    words = split_name(one.name)
    return bool((KNOWN.search(words) or AGE.search(words)) and not HARMFUL.search(words))


def _is_measure(one: Column) -> bool:
    """Return whether a column is a number with many values over a wide range, such as a blood pressure."""
    if not one.is_number or one.different <= FEW:
        return False
    if one.is_whole or np.all(one.numbers == np.floor(one.numbers)):
        numbers = one.sorted_numbers
        return bool(len(numbers)) and float(numbers[-1] - numbers[0]) > WIDE
    return True


def _judge(one: Column, *, first_date: bool) -> tuple[str, Any]:
    """Return the role that ``init`` proposes for one column, or the question that it asks the publisher about it.

    Args:
        one: The column.
        first_date: Whether this is the first column of dates; only that one is published.

    Returns:
        The role ("published", "weight") or the kind of question, such as "dates" or "sensitive"; and the bins by which
        the column is coarsened if it is published, None to publish its values as they are.
    """
    words = split_name(one.name)
    harmful = bool(HARMFUL.search(words))
    if one.is_date:
        return ("published" if first_date and not harmful else "dates"), "month"
    if one.is_number and WEIGHT.search(words) and _looks_like_weight(one):
        return "weight", None
    if AGE.search(words) and one.is_number:
        return "published", {"top": OLD} if one.quantile(1) > OLD and one.quantile(0.5) < OLD else None
    if POSTAL.search(words) and (bins := _shorten_code(one)):
        return "published", bins
    if _is_measure(one):
        if one.is_whole and one.different <= MOST_CODES and KNOWN.search(words) and not harmful:
            return "published", None
        bins = _round(one)
        return ("sensitive" if harmful else "measurements"), bins
    if harmful:
        return "sensitive", None
    if KNOWN.search(words):
        return "published", None
    return "unknown", None


def _looks_like_weight(one: Column) -> bool:
    numbers = one.sorted_numbers
    if not len(numbers) or numbers[0] < 0 or one.different <= FEW:
        return False
    median, mean = float(np.median(numbers)), float(numbers.mean())
    return bool(numbers[-1] > LONG_TAIL * median or 0.8 <= mean <= 1.25)


def _shorten_code(one: Column) -> Any:
    """Return bins that shorten a postal code; None if it is short already.

    A text keeps its first three characters, a number its hundreds.
    """
    if one.is_text:
        return {"prefix": 3} if max(map(len, one.texts), default=0) > 3 else None
    wide = one.is_whole and one.quantile(1) - one.quantile(0) > WIDTH
    return {"width": WIDTH} if wide and one.quantile(1) > 999 else None


def _round(one: Column) -> Any:
    """Return bins that round a number and cut it at its ends; None if it has too few values.

    The step is 1, 2 or 5 times a power of ten, chosen so that 20 to 50 rounded values occur.
    """
    low, high = one.quantile(CUT), one.quantile(1 - CUT)
    if not high > low:
        return None
    exact = (high - low) / 40
    power = floor(log10(exact))
    step = next(Decimal(step).scaleb(power) for step in (1, 2, 5, 10) if float(Decimal(step).scaleb(power)) >= exact)
    step = max(step, Decimal(1)) if one.is_whole else step
    cut = {name: _as_plain(Decimal(str(end)) // step * step) for name, end in (("bottom", low), ("top", high))}
    return {"round": _as_plain(step), **cut} if cut["bottom"] < cut["top"] else {"round": _as_plain(step)}


def _as_plain(number: Decimal) -> int | float:
    """Return a decimal as TOML writes it: a whole number if it has no fraction, a float otherwise."""
    return int(number) if number == int(number) else float(number)


# The sensitive column -------------------------------------------------------------------------------------------------

HARMLESS = re.compile(
    r"(neg(ative)?|no|non|none|not?_.*|n|0|0\.0|false|f|never|good|normal|healthy|absent|nil|nothing|unaffected|"
    r"not (detected|applicable|reactive|present)|no .*|keine?|nein|paid|fully paid|current|\+0)",
    re.IGNORECASE,
)
AMOUNTS, COMMONEST = 60, 0.1


def is_harmless(value: str, secret: Column) -> bool:
    """Return whether a sensitive value is a word that says that it harms nobody, such as "none".

    Such a value needs no protection. NULL counts as harmless if the column ``secret`` has at most two other values.
    """
    if value == "NULL":
        return secret.different <= 2
    return bool(HARMLESS.fullmatch(value.strip()))


def is_amount(secret: Column, *, categorical: bool) -> bool:
    """Return whether a sensitive column is published as numbers and not as categories.

    It then holds many different numbers or points in time. Fractions are always amounts; of whole numbers and points in
    time, no value may be common.

    Args:
        secret: The column.
        categorical: Whether the publisher says that its numbers are codes of categories.
    """
    if categorical or not (secret.is_number or secret.is_date) or secret.different <= AMOUNTS:
        return False
    most = float(secret.counts[1:].max(initial=0)) / max(1, secret.filled)
    return most <= COMMONEST or not (secret.is_whole or secret.is_date)


def list_likely_sensitive(columns: Iterable[Column]) -> list[str]:
    """Return the columns that may be sensitive: first those whose name suggests harm, then other categories."""
    fitting = [one for one in columns if one.different > 1 and not names_records_or_people(one.name)]
    fitting = [one for one in fitting if one.is_number or not one.is_unique]
    harmful = [one for one in fitting if HARMFUL.search(split_name(one.name))]
    others = [one for one in fitting if one not in harmful and one.different <= AMOUNTS]
    others.sort(key=_is_known)
    return [one.name for one in (*harmful, *others)]
