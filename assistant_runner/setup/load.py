"""Assistant files in, assistants out: found, read, extended, overlaid with a profile, checked.

Nothing is sent anywhere: a file with a problem gives FileInvalid with all its problems. The keys are
described in docs/assistant-file.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from assistant_runner.errors import ConfigurationError, near_words
from assistant_runner.setup.checking import Entry, check, describe, unknown_key
from assistant_runner.setup.document import (
    FileInvalid,
    KeyPath,
    Leaf,
    Mapped,
    Node,
    Place,
    Problem,
    Sequence,
    dotted,
    expand,
    overlay,
    plain,
)
from assistant_runner.setup.finding import FILE_NAMES, FILE_STEM, SUFFIXES
from assistant_runner.setup.model import (
    AssistantBody,
    AssistantSpec,
    LimitsEntry,
    PolicyEntry,
    ResourcesEntry,
    ToolUse,
)
from assistant_runner.setup.parsing import parse_file
from assistant_runner.setup.reading import (
    find_files,
    read_backend,
    read_engine,
    read_instructions,
    read_response_format,
    read_tool_choice,
    read_tools,
)

PROFILE_VARIABLE = "ASSISTANT_RUNNER_PROFILE"
FILE_KEYS = ("assistants", "defaults", "profiles", "project", "$schema")
FILE_ONLY = ("profiles", "project", "extends", "abstract", "$schema")
UNEXPANDED = ("instructions",)
MAX_INSTRUCTIONS = 256_000
MAX_EXTENDS = 20


class _FileHead(Entry):
    project: str = Field(default="", max_length=200)
    abstract: bool = False


def load_assistant_file(
    path: Path | str, *, environ: Mapping[str, str], profile: str | None = None
) -> list[AssistantSpec]:
    """The assistants of a file or folder, in order. FileInvalid lists all problems; nothing is sent.

    `profile` (else `ASSISTANT_RUNNER_PROFILE`) names an overlay under `profiles`.
    """
    return load_assistant_files(assistant_files(Path(path)), environ=environ, profile=profile)


def load_assistant_files(
    files: list[Path], *, environ: Mapping[str, str], profile: str | None = None
) -> list[AssistantSpec]:
    """As `load_assistant_file`, of several files; one name twice is a problem."""
    loader = _Loader(environ, profile or environ.get(PROFILE_VARIABLE) or None)
    specs = [spec for file in files for spec in loader.load(file)]
    loader.check_profile(files)
    first: dict[str, AssistantSpec] = {}
    for spec in specs:
        if (other := first.setdefault(spec.identity, spec)) is not spec:
            loader.problems.append(
                Problem(spec.place("name"), "name", f"{spec.name!r} is there already: {other.place('name')}")
            )
    if loader.problems:
        raise FileInvalid(_unique(loader.problems))
    return specs


def assistant_files(path: Path) -> list[Path]:
    """The assistant files of a path: itself, or what a folder holds.

    A folder: `assistant.yaml` (.yml, .toml, .json) and `*.assistant.yaml`; in a folder named
    `assistants` every file of these formats; then those in its folder `assistants`.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        near = [name for name in FILE_NAMES if (path.parent / name).is_file()]
        raise ConfigurationError(
            f"{path}: no such file or folder",
            remedy=f"did you mean {path.parent / near[0]}?"
            if near
            else "write one: assistant-runner assistant init",
        )
    everything = sorted(p for p in path.iterdir() if p.is_file() and p.suffix.lower() in SUFFIXES)
    if path.name == "assistants":
        found = everything
    else:
        found = [p for p in everything if p.name in FILE_NAMES or p.stem.endswith(f".{FILE_STEM}")]
    if path.name != "assistants" and (path / "assistants").is_dir():
        found += assistant_files(path / "assistants")
    if not found:
        raise ConfigurationError(
            f"{path}: no assistant file in this folder",
            remedy="name the file, or write one: assistant-runner assistant init",
        )
    return found


def _unique(problems: list[Problem]) -> list[Problem]:
    return list(dict.fromkeys(problems))


@dataclass(slots=True)
class _Loader:
    environ: Mapping[str, str]
    profile: str | None
    problems: list[Problem] = field(default_factory=list)
    profiles_seen: set[str] = field(default_factory=set)
    parsed: dict[Path, list[Node]] = field(default_factory=dict)

    def load(self, path: Path) -> list[AssistantSpec]:
        """The assistants of one file; its problems are added to ours."""
        specs = []
        try:
            documents = self._documents(path)
        except FileInvalid as error:
            self.problems += error.problems
            return []
        if not documents:
            self.problems.append(Problem(Place(path), "", "the file is empty; an assistant needs a name"))
        for document in documents:
            if not isinstance(document, Mapped):
                found = describe(plain(document))
                self.problems.append(
                    Problem(document.place, "", f"expected a map with a name; found {found}")
                )
                continue
            specs += self._file(document, path)
        return specs

    def _documents(self, path: Path) -> list[Node]:
        key = path.resolve()
        if key not in self.parsed:
            self.parsed[key] = parse_file(path)
        return self.parsed[key]

    def _file(self, document: Mapped, path: Path) -> list[AssistantSpec]:
        kind = document.get("object")
        if isinstance(kind, Leaf) and kind.value in ("assistant", "list", "agent"):
            words = "this is an object of the API, not an assistant file"
            hint = f"write one of it: assistant-runner assistant import --from {path.name} -o assistant.yaml"
            self.problems.append(Problem(kind.place, "object", f"{words}; {hint}"))
            return []
        if "assistants" not in document.entries:
            merged = self._complete(document, {}, ())
            return self._assistants([((), merged)], path, document)
        for key, (place, _) in document.entries.items():
            if key not in FILE_KEYS and not key.startswith("x-"):
                body = key in AssistantBody.model_fields
                hint = "; it belongs to an assistant, or under defaults" if body else ""
                self.problems.append(
                    Problem(
                        place,
                        key,
                        f"unknown key beside assistants{hint}" if body else unknown_key(key, FILE_KEYS),
                    )
                )
        members = self._members(document.get("assistants"))
        defaults = document.get("defaults")
        over = self._chosen_profile(document, ())
        siblings = {name: node for name, _, node in members if name}
        made: list[tuple[KeyPath, Mapped]] = []
        for _, at, node in members:
            below = self._complete(node, siblings, at)
            if isinstance(defaults, Mapped):
                below = _as_map(overlay(defaults, below))
            if over is not None:
                below = _as_map(overlay(below, over))
            made.append((at, below))
        return self._assistants(made, path, document)

    def _members(self, node: Node | None) -> list[tuple[str | None, KeyPath, Mapped]]:
        """Name, key path and node of each assistant under `assistants` (a list, or a map by name)."""
        members: list[tuple[str | None, KeyPath, Mapped]] = []
        if isinstance(node, Sequence):
            items: list[tuple[str | int, Place, Node]] = [(i, n.place, n) for i, n in enumerate(node.items)]
        elif isinstance(node, Mapped):
            items = [(key, place, inner) for key, (place, inner) in node.entries.items()]
        else:
            place = node.place if node else Place(Path())
            self.problems.append(Problem(place, "assistants", "expected a list, or a map by name"))
            return []
        for key, place, inner in items:
            at: KeyPath = ("assistants", key)
            if not isinstance(inner, Mapped):
                found = describe(plain(inner))
                self.problems.append(Problem(place, dotted(at), f"expected a map; found {found}"))
                continue
            if isinstance(key, str) and "name" not in inner.entries:
                inner = Mapped({"name": (place, Leaf(key, place)), **inner.entries}, inner.place)
            name = inner.get("name")
            label = key if isinstance(key, str) else str(name.value) if isinstance(name, Leaf) else None
            members.append((label, at, inner))
        return members

    # --- extends and profiles ---

    def _complete(
        self, node: Mapped, siblings: Mapping[str, Mapped], at: KeyPath, trail: tuple[int, ...] = ()
    ) -> Mapped:
        """The node upon what it extends, with its profile upon both."""
        merged = node
        extends = node.get("extends")
        if extends is not None:
            base: Mapped | None = None
            for one in self._extended(extends, siblings, at, trail):
                base = _as_map(overlay(base, one)) if base else one
            if base:
                entries = {k: v for k, v in base.entries.items() if k not in ("abstract", "profiles")}
                merged = _as_map(overlay(Mapped(entries, base.place), node))
        over = self._chosen_profile(node, at)
        return merged if over is None else _as_map(overlay(merged, over))

    def _chosen_profile(self, node: Mapped, at: KeyPath) -> Mapped | None:
        """The overlay of the profile that was asked for; what is wrong in any profile is a problem."""
        profiles = node.get("profiles")
        if profiles is None:
            return None
        if not isinstance(profiles, Mapped):
            words = f"expected a map of overlays by name; found {describe(plain(profiles))}"
            self.problems.append(Problem(profiles.place, dotted((*at, "profiles")), words))
            return None
        self.profiles_seen |= set(profiles.entries)
        known = list(AssistantBody.model_fields)
        for name, (place, inner) in profiles.entries.items():
            where: KeyPath = (*at, "profiles", name)
            if not isinstance(inner, Mapped):
                words = f"expected a map; found {describe(plain(inner))}"
                self.problems.append(Problem(place, dotted(where), words))
                continue
            for key, (key_place, _) in inner.entries.items():
                if key not in known:
                    words = unknown_key(key, known)
                    self.problems.append(Problem(key_place, dotted((*where, key)), words))
        chosen = profiles.get(self.profile) if self.profile else None
        return chosen if isinstance(chosen, Mapped) else None

    def _extended(
        self, extends: Node, siblings: Mapping[str, Mapped], at: KeyPath, trail: tuple[int, ...]
    ) -> list[Mapped]:
        names = extends.items if isinstance(extends, Sequence) else [extends]
        found: list[Mapped] = []
        for name in names:
            key = dotted((*at, "extends"))
            if not (isinstance(name, Leaf) and isinstance(name.value, str)):
                self.problems.append(Problem(name.place, key, "expected a file or a name"))
                continue
            base = self._base(name, siblings, key)
            if base is None:
                continue
            if id(base) in trail or len(trail) > MAX_EXTENDS:
                self.problems.append(Problem(name.place, key, f"{name.value} extends itself"))
                continue
            inner = siblings if name.value in siblings else {}
            found.append(self._complete(base, inner, at, (*trail, id(base))))
        return found

    def _base(self, name: Leaf, siblings: Mapping[str, Mapped], key: str) -> Mapped | None:
        if name.value in siblings:
            return siblings[name.value]
        path = name.place.file.parent / name.value
        if path.suffix.lower() not in SUFFIXES:
            near = near_words(name.value, siblings)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self.problems.append(
                Problem(
                    name.place,
                    key,
                    f"no assistant {name.value!r} in this file and no file of that name{hint}",
                )
            )
            return None
        try:
            documents = self._documents(path)
        except FileInvalid as error:
            self.problems += error.problems
            return None
        except ConfigurationError as error:
            self.problems.append(Problem(name.place, key, error.message))
            return None
        if (
            len(documents) != 1
            or not isinstance(documents[0], Mapped)
            or "assistants" in documents[0].entries
        ):
            self.problems.append(Problem(name.place, key, f"{path} is not a file of one assistant"))
            return None
        return documents[0]

    def check_profile(self, files: list[Path]) -> None:
        """A profile that no file has is a problem."""
        if not self.profile or self.profile in self.profiles_seen:
            return
        near = near_words(self.profile, self.profiles_seen)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        known = ", ".join(sorted(self.profiles_seen)) or "none"
        place = Place(files[0]) if files else Place(Path())
        self.problems.append(
            Problem(place, "profiles", f"no profile {self.profile!r}; there are: {known}{hint}")
        )

    # --- one assistant ---

    def _assistants(
        self, members: list[tuple[KeyPath, Mapped]], path: Path, document: Mapped
    ) -> list[AssistantSpec]:
        head_keys = {k: v for k, v in document.entries.items() if k in ("project", "abstract")}
        head = check(_FileHead, Mapped(head_keys, document.place), (), self.problems) or _FileHead()
        specs = []
        for at, node in members:
            own = node.get("abstract")
            if (own is not None and str(plain(own)).lower() == "true") or (not at and head.abstract):
                continue
            spec = self._assistant(at, node, path, head.project)
            if spec:
                specs.append(spec)
        return specs

    def _assistant(self, at: KeyPath, node: Mapped, path: Path, project: str) -> AssistantSpec | None:
        before = len(self.problems)
        raw = {k: v for k, v in node.entries.items() if k not in FILE_ONLY and not k.startswith("x-")}
        ready: dict[str, tuple[Place, Node]] = {}
        for key, (place, inner) in raw.items():
            if key in UNEXPANDED:
                ready[key] = (place, inner)
            else:
                ready[key] = (place, expand(inner, self.environ, self.problems, (*at, key)))
        body_node = Mapped(ready, node.place)
        body = check(AssistantBody, body_node, at, self.problems)
        fix = bool(body and body.fix_schemas)
        values = self._forms(at, ready, raw, fix_schemas=fix)
        if body is None or len(self.problems) > before:
            return None
        given = {key for key, (_, inner) in ready.items() if key in AssistantBody.model_fields}
        names = set(AssistantBody.model_fields) - set(values) - {"tools", "metadata"}
        simple = {name: getattr(body, name) for name in names if name not in _FORM_KEYS}
        return AssistantSpec(
            **simple,
            **values,
            source=path,
            metadata=body.metadata or {},
            project=project,
            profile=self.profile,
            given=frozenset(given),
            places={(key,): place for key, (place, _) in ready.items()},
        )

    def _forms(
        self,
        at: KeyPath,
        ready: Mapping[str, tuple[Place, Node]],
        raw: Mapping[str, tuple[Place, Node]],
        *,
        fix_schemas: bool,
    ) -> dict[str, Any]:
        """The values of the keys that have several forms."""
        problems = self.problems
        values: dict[str, Any] = {}
        for key in _FORM_KEYS & set(ready):
            place, node = ready[key]
            where = (*at, key)
            if key == "instructions":
                text = read_instructions(node, where, self.environ, problems)
                if text is not None and len(text) > MAX_INSTRUCTIONS:
                    problems.append(
                        Problem(
                            place,
                            dotted(where),
                            f"expected at most {MAX_INSTRUCTIONS} characters; found {len(text)}",
                        )
                    )
                values[key] = text
            elif key == "tool_choice":
                values[key] = read_tool_choice(node, where, problems)
            elif key == "response_format":
                values[key] = read_response_format(node, where, problems)
            elif key == "backend":
                values[key] = read_backend(node, where, problems)
            elif key == "engine":
                values[key] = read_engine(node, raw[key][1], where, problems)
            elif key == "limits":
                values[key] = check(LimitsEntry, node, where, problems) or LimitsEntry()
            elif key == "tool_resources":
                values[key] = check(ResourcesEntry, node, where, problems)
            elif key == "policy":
                entry = check(PolicyEntry, node, where, problems)
                values[key] = entry.policy() if entry else None
            elif key == "tools" and isinstance(node, Sequence):
                values |= self._tools(node, where, fix_schemas=fix_schemas)
        return values

    def _tools(self, node: Sequence, at: KeyPath, *, fix_schemas: bool) -> dict[str, Any]:
        uses = read_tools(node, at, self.problems, fix_schemas=fix_schemas)
        found: dict[str, Any] = {"tools": uses}
        for use in uses:
            if use.kind == "code_interpreter":
                found["interpreter_files"] = self._files(use)
            if use.kind == "file_search":
                found["search_files"] = self._files(use)
        return found

    def _files(self, use: ToolUse) -> Any:
        return find_files(use.entry.files, use.place, use.key, self.problems)


_FORM_KEYS = {
    "instructions",
    "tool_choice",
    "response_format",
    "backend",
    "engine",
    "limits",
    "tool_resources",
    "policy",
    "tools",
}


def _as_map(node: Node) -> Mapped:
    assert isinstance(node, Mapped)
    return node
