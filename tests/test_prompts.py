"""Lists of prompts: what is typed is what is read, and what can't be read says where and why."""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lenses import prompts
from lenses.errors import BadPromptFile
from lenses.prompts import Manner, Row, columns
from lenses.prompts.records import Record, records

HEADER = ["prompt", "target", "id", "group", "note", "Source"]
NAMES = ["x.csv", "x.tsv", "x.txt", "x.json", "x.jsonl", "x.xlsx", "x"]


def read(data: bytes | str, name: str = "x.csv", **manner: object) -> prompts.PromptList:
    return prompts.read(data.encode() if isinstance(data, str) else data, name, Manner(**manner))


def pairs(found: prompts.PromptList) -> list[tuple[str, str | None]]:
    return [(row.prompt, row.target) for row in found.rows]


def delimited(rows: list[list[str]], delimiter: str = ",") -> str:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter).writerows(rows)
    return out.getvalue()


def jsonl(rows: list[list[str]]) -> list[str]:
    header, *below = rows
    return [json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False) for row in below]


def escaped(text: str) -> str:
    """As a workbook holds what XML can't, and text that looks like such an escape."""
    return re.sub(r"[\x01-\x08\x0b-\x1f\ufffe\uffff]|_(?=x)", lambda m: f"_x{ord(m[0]):04X}_", text)


def workbook(*sheets: list[list[object]]) -> bytes:
    book, out = openpyxl.Workbook(), io.BytesIO()
    book.remove(book.active)
    for rows in sheets:
        sheet = book.create_sheet()
        for number, row in enumerate(rows, start=1):
            for column, value in enumerate(row, start=1):
                text = isinstance(value, str) and not value.startswith(("=SUM", "#N/A"))
                cell = sheet.cell(number, column, escaped(value) if text else value)
                cell.data_type = "s" if text else cell.data_type
    book.save(out)
    return out.getvalue()


def repacked(data: bytes, part: str, text: bytes) -> bytes:
    """The archive with one of its parts replaced, or one more."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if name != part:
                new.writestr(name, old.read(name))
        new.writestr(part, text)
    return out.getvalue()


PARIS = [("The café is", " Paris")]
TABLE = "prompt\ttarget\nThe café is\t Paris\n"
AS_TYPED = ["NA", "None", "null", "007", "1e5", "True", " Paris", "12345678901234567890", "1_0", "#N/A"]
READ = {
    "a blank among numbers": ("prompt,target\na,1\nb,2\nc,\n", [("a", "1"), ("b", "2"), ("c", None)]),
    "text that looks like something else": (
        "prompt,target\n" + "".join(f"{text},{text}\n" for text in AS_TYPED),
        [(text, text) for text in AS_TYPED],
    ),
    "a byte order mark": (TABLE.encode("utf-8-sig"), PARIS),
    "two byte order marks": ("\ufeff\ufeff" + TABLE, PARIS),
    "UTF-16": (TABLE.encode("utf-16"), PARIS),
    "UTF-16 BE": (("\ufeff" + TABLE).encode("utf-16-be"), PARIS),
    "UTF-16 LE without mark": (TABLE.encode("utf-16-le"), PARIS),
    "UTF-16 BE without mark": (TABLE.encode("utf-16-be"), PARIS),
    "UTF-32": (TABLE.encode("utf-32"), PARIS),
    "Windows-1252": (TABLE.encode("cp1252"), PARIS),
    "a space before the target": ("prompt,target\na, Paris\n", [("a", " Paris")]),
    "a space at the end that does not break": ("prompt\na\u00a0\n", [("a\u00a0", None)]),
    "line ends within quotes": (
        'prompt,target\n"Line one\nline two ends with"," x"\n',
        [("Line one\nline two ends with", " x")],
    ),
    "CRLF": ('prompt,target\r\n"a\r\nb",c\r\nd,e', [("a\r\nb", "c"), ("d", "e")]),
    "lone CR": ("prompt,target\ra,b\rc,d\r", [("a", "b"), ("c", "d")]),
    "line ends of other systems": ("prompt,target\na\u2028\x85\x0c\x1e,b\n", [("a\u2028\x85\x0c\x1e", "b")]),
    "quotes within": ('prompt,target\n"He said ""hi"" and",x "y"\n', [('He said "hi" and', 'x "y"')]),
    "a tolerant header": (" Prompt , TARGET \na,b\n", [("a", "b")]),
    "no target": ("note,prompt\na,b\n", [("b", None)]),
    "semicolons": ("prompt;target\na,b;c\n", [("a,b", "c")]),
    "bars": ("prompt|target\na,b|c\n", [("a,b", "c")]),
    "one column": (
        'prompt\nIt is, so; I\tthink\n"a ""b"", c"\n',
        [("It is, so; I\tthink", None), ('a "b", c', None)],
    ),
    "most columns": ("prompt,a;prompt;c\nx;y;z\n", [("y", None)]),
    "blank lines": ("\n,,\n  \nprompt,target\n\n,\n   \na,b\n", [("a", "b")]),
    "an empty surplus": ("prompt,target\na,b,,\n", [("a", "b")]),
    "a column without a name": ("prompt,target,\na,b\n", [("a", "b")]),
    "the same prompt twice": ("prompt\na\na\n", [("a", None), ("a", None)]),
    "a long prompt": (f"prompt,target\n{'x' * 1_000_000},y\n", [("x" * 1_000_000, "y")]),
}


@pytest.mark.parametrize(("data", "expected"), READ.values(), ids=READ)
def test_a_table_is_read_as_it_was_typed(data, expected):
    found = read(data)
    assert pairs(found) == expected
    assert [row.row for row in found.rows] == list(range(1, len(expected) + 1))
    assert found.good == found.rows


OTHERS = {
    "a prompt a line": (
        "x.txt",
        '\ufeffThe capital is\n\n  a, b \u00a0\n"c\r\n',
        ["The capital is", "  a, b \u00a0", '"c'],
    ),
    "lone CR": ("x.TXT", "a\r\rb", ["a", "b"]),
    "Excel's Unicode text": ("x.txt", TABLE.encode("utf-16"), ["The café is"]),
    "JSONL": ("x.jsonl", '\ufeff{"prompt": "a\\u00e9"}\r\n\n"b"\n\ufeff{"prompt": "c"}', ["aé", "b", "c"]),
    "NDJSON": ("x.ndjson", '"b"', ["b"]),
    "a list of texts": ("x.json", '["a", "b"]', ["a", "b"]),
    "a list within": ("x.json", '{\n"name": {}, "prompts": [{"Prompt ": "a"},\n"b"]\n}\n', ["a", "b"]),
    "JSONL in a .json": ("x.json", '{"prompt": "a"}\n{"prompt": "b"}', ["a", "b"]),
    "a list in a .jsonl": ("x.jsonl", '[\n"a",\n"b"]', ["a", "b"]),
    "numbers": (
        "x.jsonl",
        '{"prompt": 1.50}\n{"prompt": true}\n{"prompt": NaN}\n',
        ["1.50", "true", "NaN"],
    ),
}


@pytest.mark.parametrize(("name", "data", "expected"), OTHERS.values(), ids=OTHERS)
def test_the_other_kinds_are_told_from_name_and_content(name, data, expected):
    found = read(data, name)
    assert [row.prompt for row in found.good] == expected
    assert found.good == found.rows


DATES = (
    '{"prompt": "a", "target": "1", "date": "1577836800"}\n'
    '{"prompt": "b", "target": null, "n": [1, 2.0, {"k": true}]}'
)


def test_json_strings_stay_strings_and_what_is_left_out_is_empty():
    first, second = read(DATES, "x.jsonl").rows
    assert first == Row(1, 1, "a", "1", extra=(("date", "1577836800"), ("n", "")))
    assert second == Row(2, 2, "b", None, extra=(("date", ""), ("n", '[1, 2.0, {"k": true}]')))


def test_other_columns_are_kept_in_their_order_and_unnamed_empty_ones_dropped():
    found = read("note,,ID,prompt,group, Source ,\nn,1,007,a,g,s,\nm,,008,b,h,,\n")
    assert found.columns == ("note", "column 2", "ID", "prompt", "group", "Source")
    assert found.extra_columns == ("note", "column 2", "Source")
    assert found.rows[0] == Row(
        1, 2, "a", None, "007", "g", (("note", "n"), ("column 2", "1"), ("Source", "s"))
    )


BROKEN = '"He said "hello" and,x'
BAD = {
    "a quote within quotes": ("x.csv", f"prompt,target\n{BROKEN}\nnext,y\n", 2, "quoted text", BROKEN),
    "a quote never closed": ("x.csv", 'prompt,target\n"a,x\nnext,y\n', 2, "quoted text", '"a,x'),
    "closed on another line": ("x.csv", 'prompt,target\n"a,x\nnext,y\nb" c,z', 2, "quoted text", '"a,x'),
    "too many": (
        "x.csv",
        "prompt,target\n\nnext,y\na,b,c\n",
        4,
        "line 4 has 3 fields and the header 2",
        "a,b,c",
    ),
    "too few": ("x.csv", "prompt,target\nnext,y\na\n", 3, "line 3 has 1 field and the header 2", "a"),
    "two lines": (
        "x.csv",
        'prompt,target\n"a\nb"\nnext,y',
        2,
        "lines 2 to 3 make a row of 1 field",
        '"a\nb"',
    ),
    "NUL": ("x.csv", "prompt,target\nnext,y\na\0b,c\n", 3, "line 3 holds a NUL byte", "a\0b"),
    "no prompt": ("x.csv", "prompt,target\nnext,y\n,c\n", 3, "line 3 has no prompt", ""),
    "no JSON": ("x.jsonl", '"next"\n{"prompt": "a"\n', 2, "line 2 is not JSON", '{"prompt": "a"'),
    "null": ("x.jsonl", '"next"\n{"prompt": null}\n', 2, "line 2 has no prompt", ""),
    "a list": ("x.jsonl", '"next"\n{"prompt": ["a"]}\n', 2, "a list or an object as its prompt", '["a"]'),
    "a target list": (
        "x.jsonl",
        '{"prompt": "next", "target": "y"}\n{"prompt": "a", "target": {}}',
        2,
        "its target",
        "a",
    ),
    "a key twice": ("x.jsonl", '"next"\n{"prompt": "a", "Prompt": "b"}', 2, "the key 'prompt' twice", None),
    "half of a character": ("x.jsonl", '"next"\n"\\ud83d"', 2, "half of a character", "\\ud83d"),
    "a number": ("x.json", '["next",\n 5]', 2, "line 2 holds '5' for a row", "5"),
    "depth": ("x.jsonl", '"next"\n' + "[" * 100_000, 2, "nested too deeply", "[" * 100_000),
}


@pytest.mark.parametrize(("name", "data", "line", "said", "prompt"), BAD.values(), ids=BAD)
def test_a_bad_row_says_where_and_why_and_the_others_are_read(name, data, line, said, prompt):
    found = read(data, name)
    bad = found.bad[0]
    assert bad.line == line
    assert said in bad.problem
    assert f"line {line}" in bad.problem or f"lines {line}" in bad.problem
    assert prompt is None or bad.prompt == prompt
    assert "next" in [row.prompt for row in found.good]
    assert "1 of them can't be run" in found.described()
    assert {row.row for row in found.rows} == set(range(1, len(found.rows) + 1))


REFUSED = {
    "empty": ("x.csv", "", {}, "x.csv is empty"),
    "header only": ("x.csv", "prompt,target\n,\n", {}, "no rows below the header in line 1"),
    "blank lines": ("x.csv", "\n \r\n\t\n", {}, "nothing but blank lines"),
    "commas": ("x.csv", ",,\n,\n", {}, "nothing but blank lines"),
    "a mark alone": ("x.txt", "\ufeff", {}, "nothing but blank lines"),
    "marks alone": ("x.jsonl", "\n\ufeff\n", {}, "nothing but blank lines"),
    "size": ("x.csv", b"prompt\n" + bytes(50_000_001), {}, "x.csv has 51 MB; lists of at most 50 MB"),
    "lines": ("x.txt", b"a\n" * 5_000_001, {}, "more than 5,000,000 lines"),
    "columns": ("x.csv", "prompt," + ",".join(map(str, range(300))), {}, "301 columns"),
    "PNG": ("x.csv", b"\x89PNG\r\n\x1a\n", {}, "x.csv is a PNG picture, not a list of prompts"),
    "JPEG": ("x.csv", b"\xff\xd8\xff\xe0", {}, "JPEG"),
    "GIF": ("x.csv", b"GIF89a\x01\x00\x01\x00\x00\x00", {}, "GIF"),
    "PDF": ("x.txt", b"%PDF-1.7\n%\xe2", {}, "PDF"),
    "old workbook": ("x.xls", bytes.fromhex("d0cf11e0a1b11ae1"), {}, ".xls"),
    "locked": (
        "x.xlsx",
        bytes.fromhex("d0cf11e0a1b11ae1") + "EncryptedPackage".encode("utf-16-le"),
        {},
        "a workbook with a password",
    ),
    "bytes": ("x.csv", bytes(range(256)), {}, "a binary file"),
    "NULs": ("x.csv", "prompt\n" + "\0a\0\0" * 9, {}, "is not text, or not in utf-8"),
    "no encoding": ("x.csv", b"prompt\na\n\x81\n", {}, "byte 0x81 in line 3"),
    "not as its mark": ("x.csv", b"\xef\xbb\xbfprompt\n\xe9\n", {}, "byte 0xE9 in line 2"),
    "half of UTF-16": ("x.csv", "prompt\na\n".encode("utf-16")[:-1], {}, "line 2"),
    "not as chosen": ("x.csv", b"prompt\r\n\xe9\n", {"encoding": "utf8"}, "not in utf8: byte 0xE9 in line 2"),
    "unknown encoding": ("x.csv", "prompt\na", {"encoding": "utf-9"}, "'utf-9' is no encoding"),
    "NUL as encoding": ("x.csv", "prompt\na", {"encoding": "\0"}, "is no encoding"),
    "no text encoding": ("x.csv", "prompt\na", {"encoding": "hex"}, "no encoding of text"),
    "no encoding of files": ("x.csv", "prompt\na", {"encoding": "idna"}, "no encoding of files"),
    "delimiter": ("x.csv", "prompt\na", {"delimiter": "::"}, "can't be the delimiter"),
    "a quote as delimiter": ("x.csv", "prompt\na", {"delimiter": '"'}, "can't be the delimiter"),
    "a column twice": ("x.csv", "\nprompt,target,target\na,b,c", {}, "line 2 names 'target' twice"),
    "a field twice": (
        "x.csv",
        "prompt,Prompt \na,b",
        {},
        "line 1 names 'prompt', 'Prompt', which all read as prompt",
    ),
    "no prompt column": (
        "x.csv",
        "question,answer\na,b",
        {},
        "no column 'prompt': line 1 names 'question', 'answer'; rename one to prompt or choose the column",
    ),
    "no such column": (
        "x.csv",
        "prompt,x\na,b",
        {"target": "y"},
        "no column 'y': line 1 names 'prompt', 'x'",
    ),
    "one for both": ("x.csv", "a,b\na,b", {"prompt": "a", "target": "a"}, "chosen for prompts and targets"),
    "no column left": (
        "x.csv",
        "a\nb",
        {"header": False, "target": "column 1"},
        "one column, which was chosen",
    ),
    "a broken header": ("x.csv", '"prompt,target\na,b\n', {}, "the header can't be read: line 1"),
    "JSON": ("x.json", '[{"prompt": "a"},\n{"prompt" "b"}]', {}, "x.json, line 2: not JSON"),
    "JSON after the end": ("x.json", '["a"]\n\n["b"]', {}, "line 3: not JSON (there is more after the end)"),
    "a comma too many": ("x.json", '["a",\n]', {}, "line 2: not JSON (a comma before the end)"),
    "an object's comma": ("x.json", '{"prompts": ["a"],\n}', {}, "line 2: not JSON"),
    "depth": ("x.json", "[" * 100_000, {}, "nested too deeply"),
    "no list": ("x.json", '{"a":\n1}', {}, "without a list under prompts"),
    "an empty list": ("x.json", "[ ]", {}, "an empty list"),
    "no JSON at all": ("x.json", "\nprompt", {}, "line 2: not JSON"),
    "no key": ("x.jsonl", '{"question": "a"}', {}, "no column 'prompt': its rows name 'question'"),
    "an archive": ("x.zip", repacked(workbook([["a"]]), "a", b"")[:99] + b"PK", {}, "damaged"),
}


@pytest.mark.parametrize(("name", "data", "manner", "said"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_cannot_be_read_is_refused_in_one_sentence(name, data, manner, said):
    with pytest.raises(BadPromptFile, match=re.escape(said)) as caught:
        read(data, name, **manner)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300


NOTED = {
    "nothing": ("x.csv", "prompt,target\na,b\n", None),
    "Windows-1252": ("x.csv", b"prompt\na \x96 b\n", "not UTF-8 (byte 0x96 in line 2): read as Windows-1252"),
    "UTF-16": ("x.csv", TABLE.encode("utf-16-le"), "every second byte is NUL: read as UTF-16-LE"),
    "carriage returns": ("x.csv", 'prompt\n"a\r\nb"\n"c\rd"\ne\n', "2 prompts with a carriage return"),
    "a table in a .txt": ("x.txt", "prompt;note\na;b\n", "line 1 names columns"),
    "a header in a .txt": ("x.txt", "prompt\na\n", "line 1 was read as a prompt"),
    "JSON in a .txt": ("x.txt", '{"prompt": "a"}\n', "looks like JSON"),
    "numbers": ("x.jsonl", '"a"\n{"prompt": 1, "target": true, "n": 2}\n', "2 values without quotes"),
    "other keys": ("x.json", '{"a": 1, "prompts": ["a"], "b": []}', "not what is under 'a', 'b'"),
}


@pytest.mark.parametrize(("name", "data", "said"), NOTED.values(), ids=NOTED)
def test_what_was_found_out_is_said_once(name, data, said):
    notes = read(data, name).notes
    assert len(notes) == (said is not None)
    assert all(said in note for note in notes)


def test_a_list_of_too_many_rows_is_refused(monkeypatch):
    monkeypatch.setattr(columns, "MOST_ROWS", 3)
    assert len(read("a\n\nb\nc", "x.txt").rows) == 3
    with pytest.raises(BadPromptFile, match="more than 3 rows"):
        read('"a"\n"b"\n"c"\n"d"', "x.jsonl")


CHOSEN = {
    "an encoding": ("x.csv", "prompt\nпривет".encode("cp1251"), {"encoding": "windows-1251"}, "привет", None),
    "a mark all the same": ("x.txt", "\ufeffé".encode(), {"encoding": "latin-1"}, "Ã©", None),
    "UTF-8 with a mark": ("x.txt", "\ufeffé".encode(), {"encoding": "utf-8"}, "é", None),
    "columns": ("x.csv", "Question;A,b;prompt\na;b;c", {"prompt": "question", "target": "A,b"}, "a", "b"),
    "a target": ("x.jsonl", '{"prompt": "a", "answer": "b"}', {"target": "answer"}, "a", "b"),
    "a target that is no prompt": ("x.csv", "target,prompt\na,b", {"prompt": "target"}, "a", None),
    "no header": ("x.csv", "a, b\nc,d", {"header": False}, "a", " b"),
    "no header, one column": ("x.csv", "a, b\nc", {"header": False}, "a, b", None),
    "no header, a target": ("x.csv", "a,b\nc,d", {"header": False, "target": "column 1"}, "b", "a"),
    "no header, columns": (
        "x.csv",
        "a,b\nc,d",
        {"header": False, "target": "column 1", "prompt": "column 2"},
        "b",
        "a",
    ),
    "no delimiter": ("x.csv", 'prompt,x\n"a,b"', {"delimiter": "", "prompt": "prompt,x"}, "a,b", None),
    "a delimiter": ("x.csv", "prompt~target\na~b", {"delimiter": "~"}, "a", "b"),
    "a header in a .txt": ("x.txt", 'prompt\n"a, b"', {"header": True}, "a, b", None),
    "no header in a .txt": ("x.txt", "prompt,target\na,b", {"header": False}, "prompt,target", None),
}


@pytest.mark.parametrize(("name", "data", "manner", "prompt", "target"), CHOSEN.values(), ids=CHOSEN)
def test_a_manner_is_followed(name, data, manner, prompt, target):
    assert pairs(read(data, name, **manner))[0] == (prompt, target)


DESCRIBED = [
    (
        "x.csv",
        "\ufeffprompt;target;note\na;b;c\nd\n",
        "CSV, UTF-8 with BOM, semicolons, header in line 1, columns prompt, target, note: 2 rows, 1 of them "
        "can't be run",
    ),
    ("x.csv", 'prompt,"a\nb"\nx,y', "CSV, UTF-8, commas, header in line 1, columns prompt, 'a\\nb': 1 row"),
    ("x.csv", "\nprompt\nx", "CSV, UTF-8, one column, header in line 2, column prompt: 1 row"),
    ("x.txt", "a\nb".encode("utf-16"), "TXT, UTF-16 with BOM, one prompt a line: 2 rows"),
    ("x.jsonl", '{"a": 1, "prompt": "b"}', "JSONL, UTF-8, columns a, prompt: 1 row"),
    ("x.xlsx", workbook([[], ["prompt"], ["a"]]), "XLSX, header in row 2, column prompt: 1 row"),
]


@pytest.mark.parametrize(("name", "data", "expected"), DESCRIBED)
def test_a_list_is_described_in_one_line(name, data, expected):
    assert read(data, name).described() == expected
    assert "no header, 1 column: 1 row" in read("a", header=False).described()


def test_a_workbook_keeps_text_and_says_what_was_no_text():
    table = [
        ["prompt", "target", "n"],
        ["007", " Paris", 1],
        [],
        [100000, 0.5, True],
        ["b", 2.0, datetime.date(2020, 1, 2)],
    ]
    found = read(workbook(table, [["other"]]), "x.xlsx")
    assert [row.line for row in found.rows] == [2, 4, 5]
    assert pairs(found) == [("007", " Paris"), ("100000", "0.5"), ("b", "2")]
    assert [row.extra for row in found.rows] == [(("n", "1"),), (("n", "TRUE"),), (("n", "2020-01-02"),)]
    assert "only the first sheet, 'Sheet', was read, not 'Sheet1'" in found.notes[0]
    assert found.notes[1].startswith("6 cells with numbers, dates or TRUE/FALSE (the first in sheet row 2)")


def test_an_error_or_a_formula_without_a_value_makes_a_bad_row():
    table = [["prompt", "target"], ["#N/A", "a"], ["=SUM(1)", "b"], ["c", "=SUM(1)"], [None, "d"], ["e", "f"]]
    found = read(workbook(table), "x.xlsx")
    assert [row.row for row in found.good] == [5]
    said = [
        "error '#N/A' as its prompt",
        "value '=SUM(1)' as its prompt",
        "as its target",
        "row 5 has no prompt",
    ]
    assert all(words in row.problem for words, row in zip(said, found.bad, strict=True))


SHARED = (
    b'<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><si><t>prompt</t></si><si>'
    b'<r><t>ax005F_</t></r><r><t xml:space="preserve"> b_x005F_x0041__x000D_</t></r>'
    b'<rPh sb="0" eb="1"><t>no</t></rPh></si></sst>'
)
TYPE = b"application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"


def shared() -> bytes:
    """A workbook as Excel writes it, its text in a table of its own."""
    data = workbook([["prompt"], ["a"]])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml")
        types = archive.read("[Content_Types].xml")
    for number, text in enumerate([b"prompt", b"a"]):
        sheet = re.sub(b'inlineStr"><is><t>%b</t></is>' % text, b's"><v>%d</v>' % number, sheet)
    part = b'<Override PartName="/xl/sharedStrings.xml" ContentType="%b"/></Types>' % TYPE
    data = repacked(data, "[Content_Types].xml", types.replace(b"</Types>", part))
    return repacked(repacked(data, "xl/worksheets/sheet1.xml", sheet), "xl/sharedStrings.xml", SHARED)


def test_shared_strings_lose_nothing():
    assert [row.prompt for row in read(shared(), "x.xlsx").rows] == ["ax005F_ b_x0041_\r"]


def test_a_workbook_that_misstates_its_size_is_read_whole():
    data = workbook([["id", "prompt"], ["1", "a"], ["2", "b"]])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml")
    small = sheet.replace(b'ref="A1:B3"', b'ref="A1:A2"')
    assert small != sheet
    assert pairs(read(repacked(data, "xl/worksheets/sheet1.xml", small), "x.xlsx")) == [
        ("a", None),
        ("b", None),
    ]


FAR = (
    b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    b'<row r="1"><c r="A1" t="str"><v>prompt</v></c></row><row r="999999999999"><c><v>1</v></c></row>'
    b"</sheetData></worksheet>"
)


def locked(data: bytes) -> bytes:
    """The archive with the mark of a password on its first part."""
    changed = bytearray(data)
    changed[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(changed)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (workbook([]), "the first sheet, 'Sheet', is empty"),
        (workbook([["prompt"]]), "no rows below the header in sheet row 1"),
        (workbook([["a"], ["b"]]), "no column 'prompt': sheet row 1 names 'a'"),
        (workbook([["prompt"], ["b"]])[:-50], "damaged"),
        (repacked(workbook([["prompt"], ["b"]]), "xl/worksheets/sheet1.xml", b"<a>"), "damaged"),
        (
            repacked(workbook([["prompt"], ["b"]]), "xl/worksheets/sheet1.xml", FAR),
            "beyond the last of a sheet",
        ),
        (locked(workbook([["prompt"], ["b"]])), "locked by a password"),
    ],
)
def test_a_workbook_that_cannot_be_read_is_refused(data, said):
    with pytest.raises(BadPromptFile, match=re.escape(said)):
        read(data, "x.xlsx")


def test_an_archive_that_unpacks_to_too_much_is_not_unpacked(monkeypatch):
    monkeypatch.setattr("lenses.prompts.workbook.MOST_UNPACKED", 2_000_000)
    bomb = repacked(workbook([["prompt"], ["b"]]), "xl/media/big", bytes(3_000_000))
    with pytest.raises(BadPromptFile, match="unpacks to 3 MB"):
        read(bomb, "x.xlsx")


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
CELLS = st.tuples(TEXT.filter(bool), *[TEXT] * (len(HEADER) - 1)).map(list)
WRITERS: dict[str, tuple[str, Callable[[list[list[str]]], bytes]]] = {
    "CSV": ("x.csv", lambda rows: delimited(rows).encode()),
    "semicolons with a mark": ("x.csv", lambda rows: delimited(rows, ";").encode("utf-8-sig")),
    "UTF-16 LE": ("x.txt", lambda rows: ("\ufeff" + delimited(rows, "\t")).encode("utf-16-le")),
    "UTF-16 BE": ("x.tsv", lambda rows: ("\ufeff" + delimited(rows, "\t")).encode("utf-16-be")),
    "JSONL": ("x.jsonl", lambda rows: "\n".join(jsonl(rows)).encode()),
    "JSON": ("x.json", lambda rows: f"[{','.join(jsonl(rows))}]".encode()),
    "XLSX": ("x.xlsx", workbook),
}


@pytest.mark.parametrize(("name", "write"), WRITERS.values(), ids=WRITERS)
@given(table=st.lists(CELLS, min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_any_text_comes_back_from_any_kind_of_file(name, write, table):
    expected = [
        Row(number, 0, prompt, target or None, id, group, (("note", note), ("Source", source)))
        for number, (prompt, target, id, group, note, source) in enumerate(table, start=1)
    ]
    data = write([HEADER, *table])
    found = read(data, name)
    assert [replace(row, line=0) for row in found.rows] == expected
    # What was found out, when chosen, gives the same list.
    again = prompts.read(data, name, found.manner)
    assert (again.rows, again.manner, again.described()) == (found.rows, found.manner, found.described())


def one_by_one(text: str) -> list[tuple[int, list[str], bool]]:
    """What `records` is to find, by reading anew from every line where a record starts."""
    lines, at, found = list(io.StringIO(text, newline="")), 0, []
    while at < len(lines):
        reader = csv.reader(lines[at:], strict=True)
        try:
            found.append((at + 1, next(reader), False))
            at += reader.line_num
        except csv.Error:
            found.append((at + 1, [], True))
            at += 1
    return found


@given(st.text('"", \n\ra', max_size=60))
@settings(max_examples=120, deadline=None)
def test_a_broken_quote_costs_one_record_and_no_other(text):
    found = list(records(io.StringIO(text, newline=""), ","))
    assert [(r.line, r.cells, bool(r.problem)) for r in found] == one_by_one(text)
    assert "".join(text[r.start : r.end] for r in found) == text


def test_quotes_that_never_close_are_read_in_linear_time():
    # Anew from every line, this would be more than a thousand million lines.
    found = list(records(io.StringIO('a","b\n' * 50_000, newline=""), ","))
    assert len(found) == 50_000
    assert all(isinstance(record, Record) and record.problem for record in found)


SMALL = [HEADER, ["a", " b", "1", "g", '"q"\n', "é"], ["c;|\t", "d", "2", "h", "_x0041_", ""]]
VALID = [(name, write(SMALL)) for name, write in WRITERS.values()] + [("x.txt", TABLE.encode("cp1252"))]


def read_or_refuse(data: bytes, name: str, **manner: object) -> None:
    try:
        found = read(data, name, **manner)
    except BadPromptFile as error:
        found, said = None, str(error)
    if found is None:
        assert len(said.splitlines()) == 1
        return
    assert found.rows
    assert all(row.problem or row.prompt for row in found.rows)
    assert len(found.described().splitlines()) == 1
    assert str(found).encode()


@given(data=st.binary(max_size=80), name=st.sampled_from(NAMES), header=st.sampled_from([None, True, False]))
@settings(max_examples=120, deadline=None)
def test_any_bytes_are_a_list_or_are_refused(data, name, header):
    read_or_refuse(data, name, header=header)
    read_or_refuse(b"prompt\n" + data, name, header=header)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A valid file with a few bytes changed; in a workbook's first sheet rather than in its archive."""
    name, data = draw(st.sampled_from(VALID))
    inside = name == "x.xlsx" and draw(st.booleans())
    part = "xl/worksheets/sheet1.xml"
    whole = zipfile.ZipFile(io.BytesIO(data)).read(part) if inside else data
    start = draw(st.integers(0, len(whole)))
    changed = whole[:start] + draw(st.binary(max_size=6)) + whole[start + draw(st.integers(0, 4)) :]
    return draw(st.sampled_from(["x", name])), repacked(data, part, changed) if inside else changed


@given(damaged())
@settings(max_examples=120, deadline=None)
def test_a_damaged_file_is_a_list_or_is_refused(file):
    name, data = file
    read_or_refuse(data, name)
