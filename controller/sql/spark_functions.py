"""The functions of Spark SQL: which there are, which are steady, and what type each gives.

Types that a table gives were compared with what Spark says of the same calls. A function that has none here can be
called where its result is converted, as in ``CAST(f(x) AS STRING)``.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from controller.sql.type_rules import (
    UNKNOWN,
    VOID,
    aggregate_type,
    common_type,
    decimal,
    decimal_parts,
    is_fractional,
    is_integer,
)
from plainsong.types import array_of, element_type, map_of, map_types, struct_of

Rule = Callable[[Sequence[str]], str]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


#: Functions whose answer depends on when, where or by whom they are called, or on chance.
UNSTEADY = _words(
    """now current_timestamp current_date current_time localtimestamp localtime curdate sysdate current_timezone
    current_user session_user user current_catalog current_database current_schema current_path version rand randn
    random randstr uniform uuid shuffle monotonically_increasing_id spark_partition_id input_file_name
    input_file_block_start input_file_block_length java_method reflect try_reflect python_worker_logs
    sql_keywords collations raise_error assert_true session_window window window_time"""
)
#: Aggregates whose answer depends on the order in which rows come.
ORDER_BOUND = _words(
    """first first_value last last_value any_value mode approx_percentile percentile_approx approx_top_k
    histogram_numeric group_concat string_agg listagg"""
)
#: Window functions that take rows by their place.
PLACED = _words("row_number ntile lag lead first_value last_value nth_value first last any_value")
WINDOW_ONLY: Mapping[str, str] = {
    "row_number": "int",
    "rank": "int",
    "dense_rank": "int",
    "ntile": "int",
    "percent_rank": "double",
    "cume_dist": "double",
    "lag": "first",
    "lead": "first",
    "nth_value": "first",
    "first_value": "first",
    "last_value": "first",
    "first": "first",
    "last": "first",
    "any_value": "first",
}
GENERATORS = _words("explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple")

_FIXED: Mapping[str, str] = {
    "string": """upper ucase lower lcase trim ltrim rtrim btrim concat_ws substring_index initcap md5 sha sha1 sha2
    base64 hex get_json_object to_json to_csv replace translate left right repeat soundex char chr format_number
    format_string printf regexp_replace regexp_extract regexp_substr space split_part conv bin date_format
    from_unixtime dayname monthname typeof url_encode url_decode parse_url mask to_char to_varchar quote array_join
    lpad rpad substring substr overlay elt""",
    "int": """length len char_length character_length octet_length bit_length ascii instr locate position charindex
    find_in_set levenshtein size cardinality array_size year month day dayofmonth dayofweek dayofyear weekofyear
    weekday quarter hour minute second hash datediff date_diff json_array_length regexp_count regexp_instr unix_date
    bit_count day_of_week day_of_month day_of_year week_of_year""",
    "bigint": """crc32 xxhash64 unix_timestamp to_unix_timestamp unix_seconds unix_millis unix_micros array_position
    factorial""",
    "double": """sqrt cbrt exp expm1 ln log log10 log2 log1p sin cos tan cot sec csc asin acos atan atan2 sinh cosh
    tanh asinh acosh atanh degrees radians pow power hypot months_between pi e rint sign signum nanvl""",
    "boolean": """isnull isnotnull isnan startswith endswith contains rlike regexp_like regexp like ilike
    array_contains arrays_overlap map_contains_key equal_null luhn_check is_valid_utf8 exists forall between""",
    "date": "to_date date_add date_sub add_months last_day next_day make_date trunc date_from_unix_date try_to_date",
    "timestamp": """to_timestamp date_trunc timestamp_seconds timestamp_millis timestamp_micros from_utc_timestamp
    to_utc_timestamp make_timestamp try_to_timestamp to_timestamp_ltz make_timestamp_ltz""",
    "binary": "unhex unbase64 to_binary encode",
    "array<string>": "split regexp_extract_all json_object_keys",
    "map<string,string>": "str_to_map",
}
_SAME = _words(
    """abs negative positive array_distinct sort_array array_sort array_remove array_compact slice array_append
    array_prepend array_insert array_except array_intersect nullif nullifzero reverse filter map_filter map_concat
    bround shiftleft shiftright shiftrightunsigned array_union"""
)
_COMMON = _words("greatest least coalesce nvl ifnull zeroifnull")


def _always(type: str) -> Rule:
    return lambda _: type


def _first(types: Sequence[str]) -> str:
    return types[0]


def _element(types: Sequence[str]) -> str:
    entry = map_types(types[0])
    return entry[1] if entry is not None else element_type(types[0]) or UNKNOWN


def _ceiling(types: Sequence[str]) -> str:
    parts = decimal_parts(types[0])
    if len(types) > 1:
        return UNKNOWN
    if parts is not None:
        return decimal(min(38, parts[0] - parts[1] + 1), 0)
    return "bigint" if is_integer(types[0]) or is_fractional(types[0]) else UNKNOWN


def _common(types: Sequence[str]) -> str:
    result = VOID
    for type in types:
        result = common_type(result, type) or UNKNOWN
    return UNKNOWN if result == VOID else result


def _entries(types: Sequence[str]) -> str:
    entry = map_types(types[0])
    return array_of(struct_of((("key", entry[0]), ("value", entry[1])))) if entry else UNKNOWN


def _sequence(types: Sequence[str]) -> str:
    common = _common(types[:2])
    return array_of(common) if common in ("tinyint", "smallint", "int", "bigint", "date", "timestamp") else UNKNOWN


def _try_divide(types: Sequence[str]) -> str:
    return "double" if not any(decimal_parts(type) for type in types) else UNKNOWN


def _remainder(types: Sequence[str]) -> str:
    return UNKNOWN if any(decimal_parts(type) for type in types) else _common(types)


_RULES: Mapping[str, Rule] = {
    **{name: _always(type) for type, names in _FIXED.items() for name in _words(names)},
    **dict.fromkeys(_SAME, _first),
    **dict.fromkeys(_COMMON, _common),
    "nvl2": lambda types: _common(types[1:]),
    "element_at": _element,
    "try_element_at": _element,
    "get": _element,
    "array_max": _element,
    "array_min": _element,
    "ceil": _ceiling,
    "ceiling": _ceiling,
    "floor": _ceiling,
    "flatten": lambda types: element_type(types[0]) or UNKNOWN,
    "array": lambda types: array_of(_common(types)),
    "array_repeat": lambda types: array_of(types[0]),
    "map_keys": lambda types: array_of((map_types(types[0]) or (UNKNOWN, ""))[0]),
    "map_values": lambda types: array_of((map_types(types[0]) or ("", UNKNOWN))[1]),
    "map_entries": _entries,
    "map_from_arrays": lambda types: map_of(element_type(types[0]) or UNKNOWN, element_type(types[1]) or UNKNOWN),
    "map_from_entries": _always(UNKNOWN),
    "concat": _common,
    "sequence": _sequence,
    "try_divide": _try_divide,
    "mod": _remainder,
    "pmod": _remainder,
    "sentences": _always("array<array<string>>"),
    "decode": lambda types: "string" if len(types) == 2 else UNKNOWN,
}

_DOUBLE_AGGREGATES = _words(
    """std stddev stddev_samp stddev_pop variance var_samp var_pop corr covar_pop covar_samp kurtosis skewness
    regr_avgx regr_avgy regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy"""
)
_AGGREGATES: Mapping[str, Rule] = {
    "count": _always("bigint"),
    "count_if": _always("bigint"),
    "approx_count_distinct": _always("bigint"),
    "regr_count": _always("bigint"),
    **dict.fromkeys(_DOUBLE_AGGREGATES, _always("double")),
    **dict.fromkeys(_words("bool_and every bool_or some any"), _always("boolean")),
    **dict.fromkeys(_words("min max max_by min_by bit_and bit_or bit_xor mode first last any_value"), _first),
    **{name: (lambda types: array_of(types[0])) for name in _words("collect_list collect_set array_agg")},
    **{name: (lambda types: aggregate_type("sum", types[0]) or UNKNOWN) for name in ("sum", "try_sum")},
    **{name: (lambda types: aggregate_type("avg", types[0]) or UNKNOWN) for name in ("avg", "mean", "try_avg")},
    "median": _always("double"),
    "percentile": lambda types: "array<double>" if element_type(types[1]) else "double",
    "percentile_cont": _always("double"),
    "listagg": _always("string"),
    "string_agg": _always("string"),
    "grouping": _always("tinyint"),
    "grouping_id": _always("bigint"),
}
AGGREGATE_NAMES = frozenset(_AGGREGATES)

#: What else Spark knows, beyond the functions with a type.
_OTHERS = _words(
    """aes_decrypt aes_encrypt aggregate array_contains arrays_zip bit_get bit_or bitmap_bit_position cast collate
    collation convert_timezone date_part datepart dateadd div equal_null extract from_csv from_json from_xml getbit
    hll_sketch_estimate hmac if inline isnull jaro_winkler_similarity json_tuple make_dt_interval make_interval
    make_timestamp_ntz make_valid_utf8 make_ym_interval map map_zip_with mod named_struct nvl2 parse_json pmod
    position reduce round schema_of_csv schema_of_json stack struct time_diff to_number to_timestamp_ntz
    to_variant_object to_xml transform transform_keys transform_values try_add try_aes_decrypt try_make_timestamp
    try_mod try_multiply try_parse_url try_subtract try_to_binary try_to_number try_url_decode try_validate_utf8
    unix_nanos validate_utf8 variant_get width_bucket xpath xpath_boolean xpath_double xpath_float xpath_int
    xpath_long xpath_number xpath_short xpath_string zip_with coalesce vector_norm timestamp date string boolean"""
)
KNOWN = frozenset(_RULES) | AGGREGATE_NAMES | frozenset(WINDOW_ONLY) | GENERATORS | _OTHERS | UNSTEADY | ORDER_BOUND


def result_type(name: str, types: Sequence[str]) -> str:
    """The type of a call; ``unknown`` where the table has none."""
    rule = _RULES.get(name)
    if rule is None:
        return UNKNOWN
    try:
        return rule(types)
    except IndexError:
        return UNKNOWN


def general_aggregate_type(name: str, types: Sequence[str]) -> str:
    """The type of an aggregate that is in the table."""
    try:
        return _AGGREGATES[name](types)
    except (IndexError, KeyError):
        return UNKNOWN
