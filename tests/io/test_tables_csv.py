"""CSV in all its forms; with pyarrow and without, the same comes out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dfwtrace.io.columns import Choice
from dfwtrace.io.read_batches import Batch
from dfwtrace.io.read_csv import CsvFile, sniff_separator
from dfwtrace.io.tables import DataFileError, Table, read_features, read_table


@contextmanager
def no_pyarrow() -> Iterator[None]:
    """As if it were not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        patch.setitem(sys.modules, "pyarrow.csv", None)
        yield


def both(path: Path, **options: Any) -> Table:
    """Read with and without pyarrow, and see that there is no difference."""
    quick = read_table(path, **options)
    with no_pyarrow():
        careful = read_table(path, **options)
    assert np.array_equal(quick.X, careful.X)
    assert np.array_equal(np.signbit(quick.X), np.signbit(careful.X))
    for one, other in ((quick.y, careful.y), (quick.weight, careful.weight)):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
    assert quick[2:5] == careful[2:5]
    return quick


def written(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_awkward_numbers(tmp_path: Path) -> None:
    numbers = ["1e-3", " 2", "+.5", "-0", "1.", '"7"', "0.1", "1e-400", "\t3 ", "+1E+02"]
    numbers += ["9007199254740993", "1.7976931348623157e308", "1e308", "2.2250738585072011e-308"]
    text = "a,b\n" + "".join(f"{number},{i}\n" for i, number in enumerate(numbers))
    table = both(written(tmp_path, text), target="b")
    assert table.X[:, 0].tolist() == [float(number.strip('"')) for number in numbers]
    assert table.y is not None
    assert table.y.dtype == np.int64


@pytest.mark.parametrize(
    "bad", ["1_000", "0x10", "1,5", "two", "٣", "1 000", "--1", "1e", "½", "5%"]
)
def test_what_is_no_number_is_text(bad: str, tmp_path: Path) -> None:
    path = written(tmp_path, f'a;b\n1;2\n"{bad}";3\n')
    said = f"column 'a' of t.csv holds text ({bad!r} in row 2): features must be numbers; "
    said += "leave it out with --features, or encode it."
    assert refusal(path, target="b") == said


@pytest.mark.parametrize("missing", ["", " ", "NA", "nan", "NaN", "null", "None", "N/A", "-nan"])
def test_what_stands_for_a_missing_value(missing: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"a,b\n1,2\n3,4\n{missing},5\n")
    said = "column 'a' of t.csv has no value in row 3 (numbering rows from 1 after the header)."
    assert refusal(path, target="b") == said


@pytest.mark.parametrize("infinite", ["inf", "-Infinity", "1e400"])
def test_infinity(infinite: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"a,b\n{infinite},5\n")
    assert refusal(path, target="b").startswith("column 'a' of t.csv is infinite in row 1 ")
    assert refusal(path, target="a").startswith("column 'a' of t.csv is infinite in row 1 ")


def refusal(path: Path, **options: Any) -> str:
    """The sentence, which is the same with pyarrow and without."""
    with pytest.raises(DataFileError) as quick:
        read_table(path, **options)
    with no_pyarrow(), pytest.raises(DataFileError) as careful:
        read_table(path, **options)
    assert str(quick.value) == str(careful.value)
    return str(quick.value)


def test_true_and_false_are_features(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b,c\ntrue,TRUE,x\nFalse,1,y\n")
    assert both(path, target="c").X.tolist() == [[1, 1], [0, 1]]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (["1", "-2", "+3"], "i"),
        (["1", "2.0", "3"], "f"),
        (["1", "x", "3"], "U"),
        (["007", "8", "9"], "U"),
        (["01", "1", "-02"], "U"),
        (["0", "10", "100"], "i"),
        (["01", "1", "0.5"], "f"),
        (["99999999999999999999", "1", "2"], "f"),
        (["NA", "DE", "FR"], "U"),  # Namibia
        (["true", "false", "true"], "U"),
        (["1_000", "2", "3"], "U"),
        (["naïve", "日本", "a,b"], "U"),
    ],
)
def test_what_targets_become(values: list[str], dtype: str, tmp_path: Path) -> None:
    text = "x,t\n" + "".join(f'{i},"{value}"\n' for i, value in enumerate(values))
    y = both(written(tmp_path, text), target="t").y
    assert y is not None
    assert y.dtype.kind == dtype
    assert y.tolist() == (values if dtype == "U" else [float(value) for value in values])


@pytest.mark.parametrize("values", [["1", "NA", "2"], ["1.5", "", "2"], ["a", "", "b"]])
def test_a_target_that_is_missing(values: list[str], tmp_path: Path) -> None:
    text = "x,t\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values))
    said = refusal(written(tmp_path, text), target="t")
    assert said.startswith("column 't' of t.csv has no value in row 2 ")


def test_several_targets_and_a_weight(tmp_path: Path) -> None:
    path = written(tmp_path, "t1,x,t2,w\n1,2,true,0.5\n4,5,false,1\n")
    table = both(path, target="t*", weight="w")
    assert table.y is not None
    assert table.y.dtype == np.float64
    assert table.y.tolist() == [[1, 1], [4, 0]]
    assert table.target_names == ["t1", "t2"]
    assert table.X.tolist() == [[2], [5]]
    assert table.weight is not None
    assert table.weight.tolist() == [0.5, 1]


def test_bad_weights_and_several_targets(tmp_path: Path) -> None:
    path = written(tmp_path, "t1,x,t2,w,v\n1,2,3,-1,a\n4,5,b,1,b\n")
    assert refusal(path, target="t1", features="x", weight="w") == (
        "column 'w' of t.csv is negative in row 1: weights must be at least 0."
    )
    assert "'v' of t.csv holds text ('a' in row 1): weights" in refusal(
        path, target="t1", features="x", weight="v"
    )
    assert "'t2' of t.csv holds text ('b' in row 2): targets" in refusal(
        path, target="t1,t2", features="x"
    )


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_lines_quotes_and_marks(ending: str, mark: bytes, tmp_path: Path) -> None:
    lines = ['"a ""1""", b ,"c;d"', "1,2,red", "", '"3",4,"red, ""dark"""', '5,6,5"', "", ""]
    path = written(tmp_path, mark + ending.join(lines).encode())
    table = both(path, target="c;d")
    assert table.feature_names == ['a "1"', "b"]
    assert table.X.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert table.y is not None
    assert table.y.tolist() == ["red", 'red, "dark"', '5"']


def test_a_line_break_inside_quotes(tmp_path: Path) -> None:
    table = both(written(tmp_path, '"a\nb",t\n1,"x\ny"\n2,z\n'), target="t")
    assert table.feature_names == ["a\nb"]
    assert table.y is not None
    assert table.y.tolist() == ["x\ny", "z"]


def test_bytes_of_another_encoding_matter_where_they_are_used(tmp_path: Path) -> None:
    path = written(tmp_path, "x,name,t\n1,Zoë,a\n2,Ann,b\n".encode("latin-1"))
    assert both(path, target="t", features="x").X.tolist() == [[1], [2]]
    said = "t.csv is not in UTF-8: see column 'name' in row 1 (numbering rows from 1 after the"
    assert refusal(path, target="name", features="x").startswith(said)
    assert refusal(path, target="t").startswith(said)


def test_batches_are_many_and_rows_are_counted_through(tmp_path: Path) -> None:
    rows = 20_000
    lines = [f"{i},{i % 7},{'ab'[i % 2]}" for i in range(rows)]
    table = both(written(tmp_path, "\n".join(["i,j,t", *lines])), target="t")
    assert np.array_equal(table.X[:, 0], np.arange(rows))
    assert np.array_equal(table.X[:, 1], np.arange(rows) % 7)
    for bad, said in (("x,1,a", "holds text ('x' in row 18001)"), (",1,a", "value in row 18001 ")):
        path = written(tmp_path, "\n".join(["i,j,t", *lines[:18_000], bad, *lines[18_001:]]))
        assert said in refusal(path, target="t")
        assert both(path, target="t", max_rows=18_000).X.shape == (18_000, 2)
        with pytest.raises(DataFileError, match="18001"):
            read_table(path, target="t", spill=tmp_path)
        assert not list(tmp_path.glob("*.npy"))  # nothing is left of what was given up


def test_pyarrow_is_used_where_it_can_be(tmp_path: Path) -> None:
    file = CsvFile(written(tmp_path, "a,b,t\n1,2,x\n3,4,y\n"))
    choice = Choice(["a", "b"], ["t"], None)
    ways: list[list[Batch]] = [list(way) for way in file.ways(choice, None)]
    assert len(ways) == 2
    for batches in ways:
        assert [column.tolist() for column in batches[0].features] == [[1, 3], [2, 4]]
    with no_pyarrow():
        assert len(list(file.ways(choice, None))) == 1


def test_a_header_is_asked_for(tmp_path: Path) -> None:
    for text in ("1.5,2\n3,4\n", "0,0\n1,2\n"):
        said = "has no header: its first line holds numbers, not column names."
        assert said in refusal(written(tmp_path, text), target="y")
    # The names that a frame without names is saved with.
    assert both(written(tmp_path, "0,1,2\n5,6,7\n"), target="2").X.tolist() == [[5, 6]]


def test_row_numbers_that_were_saved_along_are_no_feature(tmp_path: Path) -> None:
    path = written(tmp_path, ",a,t\n0,5,x\n1,6,y\n")
    assert refusal(path, target="t").startswith("column 1 of t.csv has no name ")
    assert both(path, target="t", features="*").X.tolist() == [[5], [6]]
    assert read_features(path, ["a"], 1).X.tolist() == [[5], [6]]


def test_the_separator_is_the_most_frequent_one() -> None:
    assert sniff_separator("a\tb,c\td") == "\t"
    assert sniff_separator("a,b;c,d") == ","


FIELDS = st.sampled_from(["1", "2.5", "x", '"', '""', '"a"', "\n", "\r", ",", ",", " ", "é", "\0"])


@given(st.lists(FIELDS, max_size=24).map("".join))
@example('1,x\n"')
@example('1,"x"y\n')
@example("1,x\n\n\n2,y")
@example('1,"x\n2,y')
def test_both_readers_agree_on_any_text(body: str) -> None:
    with TemporaryDirectory() as folder:
        path = written(Path(folder), "a,b\n" + body)
        for options in ({"target": "b"}, {"target": "b", "features": "a", "max_rows": 1}):
            try:
                read_table(path, **options)  # type: ignore[arg-type]
            except DataFileError:
                refusal(path, **options)
            else:
                both(path, **options)
