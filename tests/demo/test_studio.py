from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import dashinfer_lab.demo
from dashinfer_lab.demo import DemoOptions
from dashinfer_lab.demo.studio import write_studio
from dashinfer_lab.errors import ConfigError


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "dist" / "dashinfer_lab-0.1.0-py3-none-any.whl"
    path.parent.mkdir()
    path.write_bytes(b"a wheel")
    return path


def _front_matter(readme: Path) -> list[str]:
    first, matter, _ = readme.read_text(encoding="utf-8").split("---\n", 2)
    assert first == ""
    return matter.splitlines()


def test_a_studio_has_its_four_files(tmp_path: Path, wheel: Path) -> None:
    written = write_studio(tmp_path / "studio", wheel)

    names = {"app.py", "README.md", "requirements.txt", wheel.name}
    assert {path.name for path in written} == names
    assert {path.name for path in (tmp_path / "studio").iterdir()} == names
    assert (tmp_path / "studio" / wheel.name).read_bytes() == b"a wheel"


def test_its_requirements_are_the_wheel_beside_them(tmp_path: Path, wheel: Path) -> None:
    write_studio(tmp_path / "studio", wheel)
    text = (tmp_path / "studio" / "requirements.txt").read_text(encoding="utf-8")

    assert text == f"./{wheel.name}[demo,hub]\n"


def test_its_readme_begins_with_what_a_studio_is_asked_for(tmp_path: Path, wheel: Path) -> None:
    write_studio(tmp_path / "studio", wheel, "owner/name")
    matter = _front_matter(tmp_path / "studio" / "README.md")

    keys = {line.partition(":")[0] for line in matter if not line.startswith(("-", " "))}
    assert keys == {"domain", "tags", "models", "deployspec", "license"}
    assert "  entry_file: app.py" in matter
    assert matter[matter.index("models:") + 1] == "- owner/name"


def test_a_model_that_no_hub_has_is_not_listed(tmp_path: Path, wheel: Path) -> None:
    write_studio(tmp_path / "studio", wheel)

    assert "models: []" in _front_matter(tmp_path / "studio" / "README.md")


def test_its_app_serves_everyone_on_the_port_a_studio_shows(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_studio(tmp_path / "studio", wheel, "owner/it's")
    served: list[tuple[str, DemoOptions]] = []

    class Served:
        def wait(self) -> None:
            served.append(("waited", DemoOptions()))

    def serve(model: str, *, options: DemoOptions) -> Any:
        served.append((model, options))
        return Served()

    monkeypatch.setattr(dashinfer_lab.demo, "serve", serve)
    source = (tmp_path / "studio" / "app.py").read_text(encoding="utf-8")
    exec(compile(ast.parse(source), "app.py", "exec"), {"__name__": "__main__"})

    options = DemoOptions(host="0.0.0.0", port=7860, language="zh")
    assert served == [("owner/it's", options), ("waited", DemoOptions())]


def test_only_a_page_that_nobody_else_reaches_takes_any_model() -> None:
    assert DemoOptions().is_private
    assert not DemoOptions(host="0.0.0.0").is_private
    assert not DemoOptions(host="192.168.1.2").is_private


def test_writing_again_replaces_it_with_the_wheel_of_now(tmp_path: Path, wheel: Path) -> None:
    write_studio(tmp_path / "studio", wheel)
    newer = wheel.with_name("dashinfer_lab-0.2.0-py3-none-any.whl")
    newer.write_bytes(b"newer")
    write_studio(tmp_path / "studio", newer)

    assert [path.name for path in (tmp_path / "studio").glob("*.whl")] == [newer.name]


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path, wheel: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")

    with pytest.raises(ConfigError, match="mine.txt"):
        write_studio(tmp_path, wheel)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.txt", "dist"}


def test_what_is_no_wheel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="make studio"):
        write_studio(tmp_path / "studio", tmp_path / "missing.whl")
