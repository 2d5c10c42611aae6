"""Writes the Parquet files of this folder: the same texts in every way that is read, and in some that are not.

    pip install pyarrow && python3 generate.py
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
# Repeated, missing, empty and long, so that dictionaries, levels and several pages occur.
TEXTS = ["one", "two", None, "", "drei für zwei", "one", None, "one", "x" * 300, "末"] * 3 + ["last"]
PLAIN = [text for text in TEXTS if text is not None]


def write(name, table, **options):
    pq.write_table(table, HERE / f"{name}.parquet", store_schema=False, **options)


def column(name="text", texts=TEXTS):
    return pa.table({name: pa.array(texts, pa.string())})


nested = pa.table(
    {
        "id": list(range(len(TEXTS))),
        "tags": pa.array([["a", "b"]] * len(TEXTS), pa.list_(pa.string())),
        "meta": pa.array([{"source": "s", "n": 1}] * len(TEXTS)),
        "text": pa.array(TEXTS, pa.string()),
        "label": pa.array(["l"] * len(TEXTS), pa.string()),
    }
)
required = pa.table([PLAIN], schema=pa.schema([pa.field("text", pa.string(), nullable=False)]))

write("plain", column(), use_dictionary=False, compression="none")
write("required", required, use_dictionary=False, compression="none")
write("snappy-dictionary", column(), compression="snappy")
write("gzip-version-2", column(), compression="gzip", data_page_version="2.0", use_dictionary=False)
write("zstd-small-pages", nested, compression="zstd", row_group_size=9, data_page_size=64)
write("snappy-version-2-dictionary", nested, compression="snappy", data_page_version="2.0")
write("other-name", column("content"), compression="zstd")
write("two-names", pa.table({"a": ["x"], "b": ["y"]}))
write("no-text", pa.table({"a": [1], "b": pa.array([["y"]], pa.list_(pa.string()))}))
write("brotli", column(), compression="brotli")
write("delta", column(), use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"})
