"""requirements.txt of a model: what may stand in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.backends.python.requirements import RequirementsError, has_hashes, read_requirements

HASH = "--hash=sha256:" + "a" * 64
NUMPY = f"numpy==2.1.0 {HASH}\n"


def test_what_tools_write_is_read() -> None:
    text = f"""#
# made by a tool
#
numpy==1.26.4 ; python_version >= '3.9' \\
    {HASH} \\
    --hash=sha512:{"b" * 128}
    # via -r requirements.in
Demo_Kit[fast, small]==1.0.post1+cpu {HASH}  # a comment
"""
    lines = read_requirements(text).lines
    assert lines == (
        f"Demo_Kit[fast, small]==1.0.post1+cpu {HASH}",
        f"numpy==1.26.4 ; python_version >= '3.9' {HASH} --hash=sha512:{'b' * 128}",
    )


@pytest.mark.parametrize(
    "line",
    [
        "demo==1.0",
        f"demo>=1.0 {HASH}",
        f"demo==1.* {HASH}",
        f"demo {HASH}",
        "demo==1.0 --hash=md5:0123456789abcdef0123456789abcdef",
        f"demo @ https://example.com/demo.whl {HASH}",
        "https://example.com/demo.whl",
        "./demo.whl",
        "-e .",
        "-r other.txt",
        "--index-url https://example.com",
        "--no-binary :all:",
        f"demo==1.0 {HASH} --no-binary :all:",
        f"demo==1.0 --global-option=x {HASH}",
        f"demo==1.0 ; x --no-binary {HASH}",
        "\\",
        f"demo==1.0 \\\n--no-binary :all: \\\n{HASH}",
    ],
)
def test_anything_else_is_refused(line: str) -> None:
    if line == "\\":
        assert read_requirements(f"{NUMPY}{line}").lines == (NUMPY.strip(),)
        return
    with pytest.raises(RequirementsError, match=r"^line 2 is not of the form 'name==version --hash=sha256:\.\.\.'"):
        read_requirements(f"{NUMPY}{line}\n")


def test_numpy_is_needed() -> None:
    with pytest.raises(RequirementsError, match="it does not name numpy, which every worker needs"):
        read_requirements(f"demo==1.0 {HASH}\n")
    with pytest.raises(RequirementsError, match="larger than 1 MiB"):
        read_requirements("#" * 2_000_000)


def test_the_key_is_of_requirements_and_interpreter_alone() -> None:
    one = read_requirements(f"{NUMPY}demo==1 {HASH}\n")
    same = read_requirements(f"# other words\ndemo==1    {HASH}\n\n{NUMPY}")
    assert one.key("3.11") == same.key("3.11") != one.key("3.12")
    assert one.key("3.11") != read_requirements(f"{NUMPY}demo==2 {HASH}\n").key("3.11")


def test_files_for_people_are_told_from_ours() -> None:
    assert has_hashes(NUMPY) and not has_hashes("numpy\ntorch>=2\n")


@given(st.text(alphabet="adm=-.:# \\\n1>h[];@/", max_size=60))
def test_no_text_smuggles_an_option(text: str) -> None:
    """Whatever is taken has the form that is promised, on one line each."""
    try:
        lines = read_requirements(NUMPY + text).lines
    except RequirementsError:
        return
    for line in lines:
        assert line.startswith("numpy==2.1.0 --hash=sha256:") or " --hash=" in line
        assert "\n" not in line and not line.startswith("-")
