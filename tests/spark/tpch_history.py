"""TPC-H at a tiny scale: tables whose values meet the parameters of the queries, and what happens to them."""

from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.memory.rows import Row
from tests.spark.oracle import History
from tests.spark.random_tables import RandomTable, Step
from tests.sql.tpch import IDS, TABLES

Record = dict[str, Any]

STEPS = 5
REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]
#: Nations by their keys, with their regions.
NATIONS = {
    2: ("BRAZIL", 1),
    3: ("CANADA", 1),
    6: ("FRANCE", 3),
    7: ("GERMANY", 3),
    8: ("INDIA", 2),
    18: ("CHINA", 2),
    20: ("SAUDI ARABIA", 4),
    24: ("UNITED STATES", 1),
}
BRANDS = ["Brand#12", "Brand#23", "Brand#34", "Brand#45"]
TYPES = ["ECONOMY ANODIZED STEEL", "PROMO BRUSHED BRASS", "MEDIUM POLISHED TIN", "STANDARD PLATED BRASS"]
CONTAINERS = ["SM CASE", "MED BOX", "MED BAG", "LG CASE"]
NAMES = ["forest green", "forest chiffon", "green ivory", "red linen"]
DATES = [
    *(date(1993, 7, 15), date(1993, 10, 10), date(1993, 12, 1), date(1994, 2, 1), date(1994, 8, 30)),
    *(date(1995, 1, 20), date(1995, 3, 10), date(1995, 8, 25), date(1996, 1, 5), date(1996, 2, 20)),
]


def _money(random: Random, low: int, high: int) -> Decimal:
    return Decimal(random.randint(low * 100, high * 100)).scaleb(-2)


class _World:
    """The records of all tables, and what each step adds to them and takes away."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.records: dict[str, list[Record]] = {name: [] for name in IDS}
        self.added: dict[str, list[Record]] = {}
        self.gone: dict[str, list[Record]] = {}
        self._orders = 0

    def begin_step(self) -> None:
        self.added = {name: [] for name in IDS}
        self.gone = {name: [] for name in IDS}

    def insert(self, table: str, record: Record) -> None:
        self.records[table].append(record)
        self.added[table].append(record)

    def delete(self, table: str, record: Record) -> None:
        self.records[table].remove(record)
        self.gone[table].append(record)

    def update(self, table: str, record: Record, **values: Any) -> None:
        self.delete(table, record)
        self.insert(table, {**record, **values})

    # --- records -------------------------------------------------------------------------------------------

    def load(self) -> None:
        random = self._random
        for key, name in enumerate(REGIONS):
            self.insert("region", {"r_regionkey": key, "r_name": name, "r_comment": None})
        for key, (name, region) in NATIONS.items():
            self.insert("nation", {"n_nationkey": key, "n_name": name, "n_regionkey": region, "n_comment": None})
        for key in range(1, 15):
            self.insert("supplier", self.supplier(key))
        for key in range(1, 26):
            self.insert("customer", self.customer(key))
        for key in range(1, 25):
            self.insert("part", self.part(key))
            for supplier in random.sample(range(1, 15), 3):
                self.insert("partsupp", self.partsupp(key, supplier))
        for _ in range(70):
            self.order()

    def supplier(self, key: int) -> Record:
        nation = self._random.choice(list(NATIONS))
        comment = self._random.choice(["quick", "quick", "the Customer has many Complaints"])
        return {
            "s_suppkey": key,
            "s_name": f"Supplier#{key}",
            "s_address": f"street {key}",
            "s_nationkey": nation,
            "s_phone": f"{nation + 10}-1",
            "s_acctbal": _money(self._random, -900, 9000),
            "s_comment": comment,
        }

    def customer(self, key: int) -> Record:
        nation = self._random.choice(list(NATIONS))
        return {
            "c_custkey": key,
            "c_name": f"Customer#{key}",
            "c_address": f"road {key}",
            "c_nationkey": nation,
            "c_phone": f"{nation + 10}-2",
            "c_acctbal": _money(self._random, -900, 9000),
            "c_mktsegment": self._random.choice(["BUILDING", "AUTOMOBILE"]),
            "c_comment": "",
        }

    def part(self, key: int) -> Record:
        random = self._random
        brand = random.randrange(len(BRANDS))
        return {
            "p_partkey": key,
            "p_name": random.choice(NAMES),
            "p_mfgr": "Manufacturer#1",
            "p_brand": BRANDS[brand],
            "p_type": random.choice(TYPES),
            "p_size": random.choice([1, 3, 9, 15, 15, 49]),
            "p_container": random.choice([CONTAINERS[min(brand, 3)], "MED BOX"]),
            "p_retailprice": _money(random, 900, 1000),
            "p_comment": "",
        }

    def partsupp(self, part: int, supplier: int) -> Record:
        return {
            "ps_partkey": part,
            "ps_suppkey": supplier,
            "ps_availqty": self._random.randint(1, 100),
            "ps_supplycost": _money(self._random, 1, 20),
            "ps_comment": "",
        }

    def order(self) -> None:
        """An order with its items."""
        random = self._random
        self._orders += 1
        day = random.choice(DATES) + timedelta(days=random.randint(0, 20))
        self.insert(
            "orders",
            {
                "o_orderkey": self._orders,
                "o_custkey": random.randint(1, 18),
                "o_orderstatus": random.choice(["F", "O"]),
                "o_totalprice": _money(random, 1000, 1004),
                "o_orderdate": day,
                "o_orderpriority": random.choice(["1-URGENT", "2-HIGH", "3-MEDIUM"]),
                "o_clerk": "",
                "o_shippriority": 0,
                "o_comment": random.choice(["", "some special requests"]),
            },
        )
        large = random.random() < 0.15
        for line in range(1, 8 if large else random.randint(2, 5)):
            self.insert("lineitem", self.item(self._orders, line, day, large))

    def item(self, order: int, line: int, day: date, large: bool) -> Record:
        random = self._random
        offer = random.choice(self.records["partsupp"])
        ship = day + timedelta(days=random.randint(1, 60))
        commit = day + timedelta(days=random.randint(1, 60))
        return {
            "l_orderkey": order,
            "l_partkey": offer["ps_partkey"],
            "l_suppkey": offer["ps_suppkey"],
            "l_linenumber": line,
            "l_quantity": Decimal(50 if large else random.choice([1, 2, 5, 11, 15, 25])).quantize(Decimal("0.01")),
            "l_extendedprice": _money(random, 900, 5000),
            "l_discount": Decimal(random.choice(["0.00", "0.05", "0.06", "0.07"])),
            "l_tax": Decimal(random.choice(["0.00", "0.08"])),
            "l_returnflag": random.choice(["R", "A", "N"]),
            "l_linestatus": random.choice(["O", "F"]),
            "l_shipdate": ship,
            "l_commitdate": commit,
            "l_receiptdate": ship + timedelta(days=random.randint(1, 30)),
            "l_shipinstruct": random.choice(["DELIVER IN PERSON", "DELIVER IN PERSON", "NONE"]),
            "l_shipmode": random.choice(["AIR", "AIR REG", "MAIL", "SHIP"]),
            "l_comment": "",
        }

    # --- a step --------------------------------------------------------------------------------------------

    def change(self) -> None:
        random = self._random
        for _ in range(4):
            gone = random.choice(self.records["orders"])
            for item in [each for each in self.records["lineitem"] if each["l_orderkey"] == gone["o_orderkey"]]:
                self.delete("lineitem", item)
            self.delete("orders", gone)
        for _ in range(6):
            self.order()
        for _ in range(10):
            item = random.choice(self.records["lineitem"])
            self.update("lineitem", item, l_quantity=item["l_quantity"] + 1, l_discount=Decimal("0.06"))
        for _ in range(3):
            order = random.choice(self.records["orders"])
            self.update("orders", order, o_orderstatus="F", o_orderpriority="1-URGENT", o_comment="")
            customer = random.choice(self.records["customer"])
            self.update("customer", customer, c_acctbal=_money(random, -900, 9000))
            offer = random.choice(self.records["partsupp"])
            self.update("partsupp", offer, ps_supplycost=_money(random, 1, 20), ps_availqty=random.randint(1, 100))
            part = random.choice(self.records["part"])
            self.update("part", part, p_type=random.choice(TYPES), p_name=random.choice(NAMES))
        supplier = random.choice(self.records["supplier"])
        self.update("supplier", supplier, s_comment="quick", s_nationkey=random.choice(list(NATIONS)))


def tpch_history(seed: int) -> History:
    world = _World(Random(seed))
    tables = []
    for name, id in IDS.items():
        relation = TABLES.resolve(name)
        assert relation is not None
        tables.append(RandomTable(name=name, id=id, columns=relation.columns))
    changes: dict[str, list[Step]] = {table.name: [] for table in tables}
    for step in range(STEPS):
        world.begin_step()
        world.change() if step else world.load()
        for table in tables:
            changes[table.name].append((_rows(table, world.added[table.name]), _rows(table, world.gone[table.name])))
    return History(tables=tables, changes=changes, steps=STEPS, begin=0)


def _rows(table: RandomTable, records: list[Record]) -> list[Row]:
    plain = pa.Table.from_pylist(records, schema=table.format.schema)
    return table.format.rows([column.combine_chunks() for column in plain.columns], plain.num_rows)
