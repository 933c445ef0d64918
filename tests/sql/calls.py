"""Calls of functions of every kind, over the columns of table ``r`` of the shapes."""

_ROWS = """
initcap(c) ltrim(c) rtrim(c) btrim(c) trim(BOTH 'x' FROM c) concat_ws('-', c, c) substring_index(c, '.', 1) md5(c)
sha1(c) sha2(c, 256) base64(CAST(c AS BINARY)) hex(a) hex(c) get_json_object(c, '$.a') to_json(st) to_csv(st)
replace(c, 'x', 'y') translate(c, 'x', 'y') left(c, 1) right(c, 1) repeat(c, 2) soundex(c) char(65) chr(65)
format_number(d, 2) format_string('%s', c) printf('%s', c) regexp_replace(c, 'x', 'y') regexp_extract(c, '(x)', 1)
regexp_substr(c, 'x') space(2) split_part(c, 'x', 1) conv(c, 10, 16) bin(a) date_format(at, 'yyyy') from_unixtime(a)
dayname(day) monthname(day) typeof(a) url_encode(c) parse_url(c, 'HOST') mask(c) quote(c) array_join(items, ',')
lpad(c, 3, 'x') rpad(c, 3, 'x') substring(c, 1, 2) overlay(c, 'x', 1) elt(1, c, c) ucase(c) lcase(c) len(c)
char_length(c) octet_length(c) bit_length(c) ascii(c) instr(c, 'x') locate('x', c) position('x' IN c)
find_in_set(c, 'a,b')
levenshtein(c, c) size(items) cardinality(mp) array_size(items) year(day) month(day) day(day) dayofmonth(day)
dayofweek(day) dayofyear(day) weekofyear(day) weekday(day) quarter(day) hour(at) minute(at) second(at) hash(a, c)
datediff(day, day) date_diff(day, day) json_array_length(c) regexp_count(c, 'x') regexp_instr(c, 'x') unix_date(day)
bit_count(a) crc32(c) xxhash64(a) unix_timestamp(at) to_unix_timestamp(at) unix_seconds(at) unix_millis(at)
unix_micros(at) array_position(items, 1) factorial(a) sqrt(d) cbrt(d) exp(d) expm1(d) ln(d) log(2, d) log10(d) log2(d)
log1p(d) sin(d) cos(d) tan(d) cot(d) sec(d) csc(d) asin(d) acos(d) atan(d) atan2(d, d) sinh(d) cosh(d) tanh(d) asinh(d)
acosh(d) atanh(d) degrees(d) radians(d) pow(a, 2) power(d, 2) hypot(d, d) months_between(day, day) pi() e() rint(d)
sign(d) signum(a) nanvl(d, d) isnull(a) isnotnull(a) isnan(d) startswith(c, 'x') endswith(c, 'x') contains(c, 'x')
regexp_like(c, 'x') array_contains(items, 1) arrays_overlap(items, items) map_contains_key(mp, 'x') equal_null(a, b)
luhn_check(c) to_date(c) to_date(c, 'yyyy-MM-dd') date_add(day, 1) date_sub(day, 1) add_months(day, 1) last_day(day)
next_day(day, 'MO') make_date(2020, 1, 1) trunc(day, 'YEAR') date_from_unix_date(a) to_timestamp(c)
date_trunc('DAY', at) timestamp_seconds(a) timestamp_millis(a) timestamp_micros(a) from_utc_timestamp(at, 'UTC')
to_utc_timestamp(at, 'UTC') make_timestamp(2020, 1, 1, 0, 0, 0) unhex(c) unbase64(c) to_binary(c, 'hex')
encode(c, 'UTF-8') decode(CAST(c AS BINARY), 'UTF-8') split(c, 'x') regexp_extract_all(c, '(x)', 1) json_object_keys(c)
str_to_map(c, ',', ':') negative(a) positive(a) array_distinct(items) sort_array(items) array_sort(items)
array_remove(items, 1) array_compact(items) slice(items, 1, 2) array_append(items, 1) array_prepend(items, 1)
array_insert(items, 1, 1) array_except(items, items) array_intersect(items, items) array_union(items, items)
nullif(a, 1) nullifzero(a) zeroifnull(a) reverse(c) reverse(items) map_concat(mp, mp) bround(d, 1) shiftleft(a, 1)
shiftright(a, 1) greatest(a, b) greatest(a, d) least(a, m) nvl(a, b) ifnull(a, b) nvl2(a, b, d) element_at(items, 1)
element_at(mp, 'x') try_element_at(items, 1) get(items, 0) array_max(items) array_min(items) ceil(d) ceil(a) ceil(m)
ceiling(d) floor(d) floor(m) flatten(array(items)) array(a, b) array(a, d) array_repeat(c, 2) map_keys(mp)
map_values(mp) map_entries(mp) map_from_arrays(items, items) sequence(1, 3) sequence(day, day) try_divide(a, b)
sentences(c) abs(d) items[0] mp['x'] st.x struct(a, c) named_struct('p', a) map('x', a, 'y', b) a DIV 2 a & b
a ^ 1 ~a extract(YEAR FROM day) extract(MINUTE FROM at) extract(SECOND FROM at) try_cast(c AS DATE) day + INTERVAL 1 DAY
day - INTERVAL 1 MONTH day + INTERVAL 1 HOUR at - INTERVAL 1 MINUTE transform(items, x -> c) filter(items, x -> x > 0)
forall(items, x -> x > 0) zip_with(items, items, (x, y) -> x + y) map_filter(mp, (k, v) -> v > 0)
transform_values(mp, (k, v) -> CAST(v AS STRING)) transform_keys(mp, (k, v) -> length(k))
aggregate(items, CAST(0 AS BIGINT), (x, y) -> x + y, x -> CAST(x AS STRING)) array_sort(items, (x, y) -> x - y)
from_json(c, 'p INT, q ARRAY<STRING>') from_json(c, 'map<string,int>') c RLIKE 'x' c ILIKE 'x' a <=> b st.x IS NULL
"""
_GROUPS = """
count(DISTINCT a) count(DISTINCT a, c) count(a, c) sum(DISTINCT a) avg(DISTINCT m) min(DISTINCT c) count_if(a > 0)
approx_count_distinct(a) stddev(a) std(d) stddev_samp(m) stddev_pop(d) variance(d) var_samp(a) var_pop(a)
bool_and(a > 0)
every(a > 0) bool_or(a > 0) some(a > 0) bit_and(a) bit_or(a) bit_xor(a) max_by(c, a) min_by(m, a) median(a)
percentile(a, 0.5) percentile(d, array(0.1, 0.9)) percentile_cont(0.5) WITHIN GROUP (ORDER BY d)
mode() WITHIN GROUP (ORDER BY c) listagg(c, ',') WITHIN GROUP (ORDER BY a) collect_list(a) collect_set(c) array_agg(d)
mean(a) mean(d) try_sum(a) max(items) min(st) sum(d) FILTER (WHERE a > 0) collect_set(a) FILTER (WHERE a > 0)
"""
_WINDOWS = """
row_number() rank() dense_rank() ntile(2) percent_rank() cume_dist() lag(c) lead(m, 1) first_value(c) sum(a) sum(m)
avg(d) avg(a) min(day) count(*) stddev(d) collect_list(a) max_by(c, a)
"""


def _split(text: str) -> list[str]:
    """Calls are separated by blanks that stand in no brackets and belong to no operator."""
    calls, depth = [""], 0
    words = " ".join(text.split())
    joined = ("DIV", "&", "^", "+", "-", "RLIKE", "ILIKE", "<=>", "IS", "WITHIN", "FILTER", "INTERVAL", "GROUP")
    for place, character in enumerate(words):
        depth += (character in "([") - (character in ")]")
        before, after = words[:place].rsplit(" ", 1)[-1], words[place + 1 :].split(" ", 1)[0]
        operator = (
            before in joined or after in joined or (before == "1" and after in ("DAY", "MONTH", "HOUR", "MINUTE"))
        )
        if character == " " and depth == 0 and not operator:
            calls.append("")
        else:
            calls[-1] += character
    return [call for call in calls if call]


ROW_CALLS = _split(_ROWS)
GROUP_CALLS = _split(_GROUPS)
WINDOW_CALLS = [f"{call} OVER (PARTITION BY c ORDER BY a, b, d)" for call in _split(_WINDOWS)]
