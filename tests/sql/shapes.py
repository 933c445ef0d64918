"""Shapes of queries beyond the first nodes, over three small tables with values of every kind."""

from collections.abc import Mapping

from controller.sql import Relation
from reconcile.ids import GlobalId
from tests.sql.tables import Tables, columns

R, S, T = GlobalId("s", 1), GlobalId("s", 2), GlobalId("u", 3)
COLUMNS: Mapping[str, str] = {
    "r": "a int|b int|c string|d double|m decimal(10,2)|at timestamp|day date|items array<int>"
    "|st struct<x:int,y:string>|mp map<string,int>",
    "s": "a bigint|e int|f string|k int!",
    "t": "x int|b int|y string",
}
IDS: Mapping[str, GlobalId] = {"r": R, "s": S, "t": T}
SHAPE_TABLES = Tables(
    {name: Relation(id=IDS[name], columns=columns(*text.split("|"))) for name, text in COLUMNS.items()}
)

#: A line for each: its name, then the query.
_TEXT = r"""
left join | SELECT r.a, r.c, s.e FROM r LEFT JOIN s ON r.a = s.a
left join, star | SELECT t.*, s.e FROM t LEFT OUTER JOIN s ON t.x = s.a
left join with more in ON | SELECT r.a, s.e FROM r LEFT JOIN s ON r.a = s.a AND r.b < s.e AND s.f = 'x' AND r.c <> 'y'
right join | SELECT r.b, s.f FROM r RIGHT JOIN s ON s.a = r.a + 1
full join | SELECT r.a, s.a AS sa, r.b FROM r FULL OUTER JOIN s ON r.a = s.a AND r.b = s.e
full join using | SELECT * FROM t FULL JOIN (SELECT b, c FROM r) USING (b)
left join using | SELECT b, x, c FROM t LEFT JOIN r USING (b)
natural right join | SELECT * FROM (SELECT a, b FROM r) NATURAL RIGHT JOIN (SELECT x AS a, y FROM t)
inner join using | SELECT * FROM t JOIN (SELECT b, c FROM r WHERE a > 0) USING (b)
semi join | SELECT a, c FROM r LEFT SEMI JOIN s ON r.a = s.a AND s.e > r.b
anti join | SELECT a, c FROM r LEFT ANTI JOIN s ON r.a = s.a
left join without equality | SELECT r.a, t.x FROM r LEFT JOIN t ON r.a < t.x
null-safe join | SELECT r.a, t.x FROM r JOIN t ON r.a <=> t.x
null-safe left join | SELECT r.a, t.y FROM r LEFT JOIN t ON r.b <=> t.b
inner then left then inner | SELECT r.a, s.e, t.y, q.c FROM r JOIN s ON r.a = s.a LEFT JOIN t ON s.e = t.x JOIN r AS q ON q.b = r.b WHERE r.c = 'x'
left join with where above | SELECT r.a, s.e FROM r LEFT JOIN s ON r.a = s.a WHERE s.e IS NULL OR r.b > 1
join on a function | SELECT r.a, s.k FROM r JOIN s ON reverse(r.c) = concat_ws('', reverse(s.f))
self outer join | SELECT x.a, y.a AS ya FROM r x LEFT JOIN r y ON x.a = y.b
exists | SELECT a, c FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.e > 0)
not exists with more | SELECT a FROM r WHERE NOT EXISTS (SELECT * FROM s WHERE s.a = r.a AND s.e <> r.b) AND b > 0
exists without link | SELECT a FROM r WHERE EXISTS (SELECT 1 FROM s WHERE e > 100)
exists without equality | SELECT a FROM r WHERE EXISTS (SELECT 1 FROM t WHERE t.x > r.a)
in | SELECT a, b FROM r WHERE a IN (SELECT x FROM t WHERE y = 'x')
in, linked | SELECT a, b FROM r WHERE a IN (SELECT x FROM t WHERE t.b = r.b)
in of pairs | SELECT a, b FROM r WHERE (a, b) IN (SELECT x, b FROM t)
not in of values that are never null | SELECT b FROM r WHERE coalesce(a, 0) NOT IN (SELECT k FROM s)
not in | SELECT a, b FROM r WHERE a NOT IN (SELECT x FROM t WHERE y = 'x')
not in of nothing | SELECT a, b FROM r WHERE a NOT IN (SELECT x FROM t WHERE x > 1000)
not in, linked | SELECT a, b FROM r WHERE a NOT IN (SELECT x FROM t WHERE t.b = r.b)
in below or | SELECT a, b FROM r WHERE a IN (SELECT x FROM t) OR b = 1
exists as a column | SELECT a, EXISTS (SELECT 1 FROM t WHERE t.x = r.a) AS there FROM r
scalar | SELECT a, (SELECT max(x) FROM t) AS top FROM r WHERE b > (SELECT min(b) FROM t)
scalar, linked | SELECT a, (SELECT sum(e) FROM s WHERE s.a = r.a) AS total FROM r
scalar count, linked | SELECT a, (SELECT count(*) + 1 FROM s WHERE s.a = r.a AND s.e > 0) AS n FROM r
scalar, linked, in where | SELECT a, b FROM r WHERE b > (SELECT avg(t.b) FROM t WHERE t.x = r.a)
scalar that is no aggregate | SELECT a, (SELECT x FROM t WHERE x > 1000) AS none FROM r
scalar in having | SELECT c, sum(a) AS n FROM r GROUP BY c HAVING sum(a) > (SELECT min(x) FROM t)
in over groups | SELECT a FROM r WHERE a IN (SELECT b FROM t GROUP BY b HAVING count(*) > 1)
count distinct | SELECT c, count(DISTINCT a) AS n FROM r GROUP BY c
count distinct of all | SELECT count(DISTINCT a) AS n, sum(DISTINCT a) AS s FROM r
count distinct beside others | SELECT c, count(DISTINCT a) AS n, count(*) AS m, sum(d) AS d, avg(m) AS v FROM r GROUP BY c
count distinct of two | SELECT c, count(DISTINCT a, b) AS n FROM r GROUP BY c
count distinct beside others of all | SELECT count(DISTINCT a) AS n, count(b) AS m FROM r
deviation | SELECT c, stddev(a) AS s, var_pop(d) AS v, stddev_pop(b) AS p, variance(d) AS w FROM r GROUP BY c
percentile | SELECT c, percentile(a, 0.5) AS p, median(d) AS m FROM r GROUP BY c
percentile_cont | SELECT c, percentile_cont(0.25) WITHIN GROUP (ORDER BY a DESC) AS p FROM r GROUP BY c
booleans | SELECT c, bool_and(a > 0) AS e, bool_or(b > 1) AS s, every(b = 1) AS v FROM r GROUP BY c
max_by | SELECT c, max_by(a, b) AS m FROM (SELECT DISTINCT c, a, a AS b FROM r WHERE a IS NOT NULL) GROUP BY c
collect | SELECT c, sort_array(collect_set(a)) AS v, array_sort(collect_list(b)) AS w FROM r GROUP BY c
bits | SELECT c, bit_and(a) AS x, bit_or(b) AS o, bit_xor(a) AS z FROM r GROUP BY c
filtered aggregates | SELECT c, sum(a) FILTER (WHERE b > 1) AS s, count(*) FILTER (WHERE a = 1) AS n FROM r GROUP BY c
filtered other aggregates | SELECT c, count(DISTINCT a) FILTER (WHERE b > 0) AS n, count_if(a > 1) AS i FROM r GROUP BY c
listagg | SELECT c, listagg(c, '-') WITHIN GROUP (ORDER BY c) AS l FROM r GROUP BY c
approximate count | SELECT c, approx_count_distinct(a) AS n FROM r GROUP BY c
keys that Spark computes | SELECT reverse(c) AS k, sum(size(items)) AS n, count(*) AS m FROM r GROUP BY reverse(c)
rollup | SELECT b, c, sum(a) AS s, grouping_id() AS g FROM r GROUP BY ROLLUP (b, c)
grouping sets with a common key | SELECT b, c, count(*) AS n, grouping(c) AS g FROM r GROUP BY GROUPING SETS ((b), (b, c))
cube beside a key | SELECT x, b, y, count(*) AS n FROM t GROUP BY x, CUBE (b, y)
group by all | SELECT c, b + 1 AS k, count(*) AS n FROM r GROUP BY ALL
having on another aggregate | SELECT c FROM r GROUP BY c HAVING count(DISTINCT a) > 1
row number | SELECT a, b, row_number() OVER (PARTITION BY c ORDER BY a, b, d, m) AS n FROM r
rank | SELECT a, rank() OVER (PARTITION BY c ORDER BY b) AS k, dense_rank() OVER (PARTITION BY c ORDER BY b DESC) AS l FROM r
running sum | SELECT a, sum(b) OVER (PARTITION BY c ORDER BY a) AS s, count(*) OVER (PARTITION BY c) AS n FROM r
running sum of doubles | SELECT a, sum(d) OVER (PARTITION BY c ORDER BY a) AS s, avg(d) OVER (PARTITION BY c) AS v FROM r
lag and lead | SELECT x, y, lag(x) OVER (PARTITION BY b ORDER BY x, y) AS p, lead(x, 2, -1) OVER (PARTITION BY b ORDER BY x, y) AS q FROM t
frames | SELECT x, y, sum(x) OVER (PARTITION BY b ORDER BY x, y ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM t
first value | SELECT x, y, first_value(y) OVER (PARTITION BY b ORDER BY x, y) AS f FROM t
last value | SELECT x, y, last_value(y) OVER (PARTITION BY b ORDER BY x, y ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l FROM t
named window | SELECT x, max(x) OVER w AS m, min(b) OVER (w) AS n FROM t WINDOW w AS (PARTITION BY y)
windows with a common part | SELECT x, count(*) OVER (PARTITION BY b, y) AS n, sum(x) OVER (PARTITION BY b) AS s FROM t
windows with nothing in common | SELECT x, count(*) OVER (PARTITION BY b) AS n, max(x) OVER (PARTITION BY y) AS s FROM t
window over all | SELECT x, rank() OVER (ORDER BY x) AS n, count(*) OVER (PARTITION BY b) AS m FROM t
window over groups | SELECT c, sum(a) AS s, sum(sum(a)) OVER (PARTITION BY c) AS t, rank() OVER (PARTITION BY c ORDER BY sum(b)) AS k FROM r GROUP BY c, b
qualify | SELECT x, y, b FROM t QUALIFY row_number() OVER (PARTITION BY b ORDER BY x, y) <= 2
qualify by alias | SELECT x, rank() OVER (PARTITION BY b ORDER BY x) AS k FROM t QUALIFY k = 1
top k per group | SELECT x, b FROM (SELECT x, b, row_number() OVER (PARTITION BY b ORDER BY x DESC, y) AS rn FROM t) WHERE rn <= 2
share of a whole | SELECT x, b, x / sum(x) OVER (PARTITION BY y) AS share FROM t WHERE x > 0
window in an expression | SELECT CASE WHEN x = max(x) OVER (PARTITION BY b) THEN 'top' ELSE y END AS k FROM t
intersect | SELECT a FROM r INTERSECT SELECT a FROM s
intersect all | SELECT a, c FROM r INTERSECT ALL SELECT x, y FROM t
except | SELECT a, b FROM r EXCEPT SELECT x, b FROM t
except all | SELECT b FROM r EXCEPT ALL SELECT b FROM t
chain of set operations | SELECT a FROM r UNION SELECT x FROM t EXCEPT SELECT e FROM s
order and limit | SELECT a, b FROM (SELECT a, b FROM r ORDER BY b DESC, a LIMIT 3)
order by what is not selected | SELECT * FROM (SELECT a FROM r ORDER BY b, a, c, d LIMIT 4)
limit alone | SELECT count(*) AS n FROM (SELECT a FROM r LIMIT 3)
limit and offset | SELECT x FROM (SELECT x, y FROM t ORDER BY x NULLS LAST, y LIMIT 3 OFFSET 1)
limit of a union | WITH q AS (SELECT a FROM r UNION ALL SELECT x FROM t ORDER BY 1 DESC LIMIT 5) SELECT a FROM q
case and functions | SELECT CASE WHEN a > 1 THEN initcap(c) ELSE lpad(c, 4, '-') END AS k, greatest(a, b) AS g, nvl(a, 0) AS n FROM r
where Spark must | SELECT a FROM r WHERE c RLIKE '^x' OR c ILIKE 'Y%' OR a IS NOT DISTINCT FROM b
dates | SELECT date_add(day, 3) AS p, year(day) AS y, datediff(day, date'2020-01-01') AS n, trunc(day, 'MM') AS t, day + INTERVAL 1 MONTH AS q FROM r
timestamps | SELECT date_trunc('hour', at) AS h, at + INTERVAL '2' HOUR AS l, hour(at) AS n, date_format(at, 'yyyy-MM') AS f, CAST(at AS date) AS d FROM r
texts | SELECT split(c, '') AS p, regexp_replace(c, 'x', 'z') AS r, concat_ws('-', c, 'q') AS w, md5(c) AS m, instr(c, 'y') AS i FROM r
numbers | SELECT sqrt(abs(a)) AS s, floor(d) AS f, ceil(m) AS c, power(a, 2) AS p, a DIV 2 AS i, a & 1 AS b, round(d, 1) AS r, pmod(a, 3) IS NULL AS z FROM r
decimals | SELECT m * 2 AS x, m / 3 AS y, sum(m) OVER (PARTITION BY c) AS s, CAST(m AS decimal(5,1)) AS z FROM r
explode | SELECT a, explode(items) AS item FROM r
explode a map | SELECT a, explode(mp) AS (k, v) FROM r
posexplode | SELECT posexplode(items), a FROM r WHERE a > 0
lateral view | SELECT a, i, k, v FROM r LATERAL VIEW explode(items) t AS i LATERAL VIEW OUTER explode(mp) u AS k, v WHERE i > 0
lateral view, grouped | SELECT i, count(*) AS n FROM r LATERAL VIEW OUTER explode(items) AS i GROUP BY i
lateral join | SELECT a, i FROM r, LATERAL explode(items) AS q(i)
inline | SELECT a, x, y FROM (SELECT a, array(st, named_struct('x', 1, 'y', c)) AS l FROM r) LATERAL VIEW inline(l) AS x, y
structs | SELECT st.x, r.st.y AS z, named_struct('p', a, 'q', st) AS n FROM r WHERE st.x > 0
arrays | SELECT items[0] AS f, size(items) AS n, array_contains(items, 1) AS h, array_sort(items) AS s, array(a, b) AS l FROM r WHERE size(items) > 0
maps | SELECT mp['x'] AS v, map_keys(mp) AS k, map('a', a) AS m, map_contains_key(mp, 'y') AS h FROM r
higher order | SELECT transform(items, x -> x + a) AS t, filter(items, (v, i) -> v > i) AS f, aggregate(items, 0, (acc, x) -> acc + x) AS s, exists(items, x -> x = a) AS e FROM r
array of structs | SELECT transform(l, e -> e.x).x IS NULL AS n, l.x AS xs FROM (SELECT array(named_struct('x', named_struct('x', a))) AS l FROM r)
distinct of structs | SELECT DISTINCT st, items FROM r
group by a struct | SELECT st, count(*) AS n, max(items) AS m FROM r GROUP BY st
try | SELECT try_cast(c AS INT) AS i, try_divide(a, b) AS q, nullif(a, 1) AS n FROM r
star with exceptions | SELECT * EXCEPT (mp, st, items) FROM r WHERE a = 1
a name given before | SELECT a + 1 AS p, p * 2 AS q FROM r
common table expressions | WITH q AS (SELECT c, count(DISTINCT a) AS n FROM r GROUP BY c), p AS (SELECT * FROM q WHERE n > 0) SELECT p.c, q.n FROM p LEFT JOIN q ON p.c = q.c
json | SELECT from_json(concat('{"u":', a, '}'), 'u INT').u AS u, to_json(named_struct('v', b)) AS j FROM (SELECT CAST(a AS STRING) AS a, b FROM r WHERE a IS NOT NULL)
left join on a function | SELECT r.a, t.x FROM r LEFT JOIN t ON reverse(r.c) = t.y
group by a function beside others | SELECT reverse(c) AS k, count(DISTINCT a) AS n, sum(b) AS s FROM r GROUP BY reverse(c)
window by a function | SELECT a, count(*) OVER (PARTITION BY reverse(c), b) AS n FROM r
groups above a linked subquery | SELECT c, day, stddev(a) AS s FROM r WHERE b > (SELECT avg(t.b) FROM t WHERE t.x = r.a) GROUP BY c, day
an equality in each branch | SELECT r.a, t.b FROM r, t WHERE r.a = t.x AND r.b = 1 OR r.a = t.x AND t.y = 'x'
order and limit by what is computed | SELECT x FROM (SELECT x, y FROM t ORDER BY abs(b) DESC, upper(y), x, y LIMIT 3 OFFSET 1)
names that we use | SELECT reverse(c) AS `_at`, a AS `_by`, b AS `_key0`, c AS `_1` FROM r
like any | SELECT a FROM r WHERE c LIKE ANY ('x%', '%y')
"""  # noqa: E501
SHAPES: Mapping[str, str] = dict(line.split(" | ", 1) for line in _TEXT.strip().splitlines())
