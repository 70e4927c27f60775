"""Environment variables: values, defaults and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.config import VARIABLES, Config
from treadle.errors import ConfigError


def _read(**environ: str) -> Config:
    return Config.from_environment({f"TREADLE_{k.upper()}": v for k, v in environ.items()})


def test_defaults_hold_without_variables() -> None:
    assert Config.from_environment({}) == Config()


def test_an_empty_variable_counts_as_unset() -> None:
    assert _read(threads="", verify="") == Config()


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("verify", "1", True),
        ("verify", "Yes", True),
        ("verify", "off", False),
        ("cache", "0", False),
        ("threads", "12", 12),
        ("threads", " 3 ", 3),
        ("cache_limit", "1048576", 1 << 20),
        ("cache_limit", "512M", 512 << 20),
        ("cache_limit", "2g", 2 << 30),
        ("dump", "/tmp/out", Path("/tmp/out")),
        ("cache_dir", "~/c", Path.home() / "c"),
        ("cache_dir", "relative", Path.cwd() / "relative"),
    ],
)
def test_values(field: str, text: str, value: object) -> None:
    assert getattr(_read(**{field: text}), field) == value


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("verify", "maybe"),
        ("threads", "0"),
        ("threads", "-1"),
        ("threads", "two"),
        ("threads", "²"),
        ("cache_limit", "M"),
        ("cache_limit", "1.5G"),
        ("cache_limit", "3X"),
    ],
)
def test_a_value_that_does_not_parse_is_an_error(field: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"TREADLE_{field.upper()} is .*, expected"):
        _read(**{field: text})


def test_the_error_says_what_was_given_what_is_needed_and_what_to_do() -> None:
    with pytest.raises(ConfigError) as caught:
        _read(threads="many")
    assert str(caught.value) == (
        "environment variable TREADLE_THREADS is 'many', expected a whole number from 1 to 1024\n"
        "  help: correct it or unset it; the default is the usable processors"
    )


def test_a_misspelt_variable_warns() -> None:
    with pytest.warns(UserWarning, match="TREADLE_THREAD; did you mean TREADLE_THREADS"):
        assert _read(thread="2") == Config()


def test_cache_root_follows_the_variable() -> None:
    assert _read(cache_dir="/tmp/c").cache_root() == Path("/tmp/c")
    assert Config().cache_root().name == "treadle"


def test_every_variable_is_documented() -> None:
    for variable in VARIABLES:
        assert variable.name == f"TREADLE_{variable.field.upper()}"
        assert variable.doc.endswith(".")
