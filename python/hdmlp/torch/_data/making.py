"""What is made of a dataset's samples: the daemon's part, and Python's."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

from ..._batches.output import Handed
from ..._lib import originals
from ..._records.declared import Declared
from ..._records.records import Listed
from ..._transforms import Transform
from ..._transforms.in_python import in_python, leaving
from ..._transforms.own_state import code_of_the_program, own_state
from ..._transforms.recipe import Recipe
from ..._transforms.split import RANDOM, may_draw
from ...data import Folder, described
from ...errors import ConfigError
from .batch_transform import BatchTransform
from .collated import DEFAULTS
from .collation import default_stacks, is_default, stack_into, torchs_default
from .fields import Fields, FieldsRecipe
from .folder import offload, pil_loader, short
from .mirror import Mirror, Relabelled
from .own_items import MadeItems, OwnItems


class Making(NamedTuple):
    """What is made of a dataset's samples.

    Attributes:
        transforms: The daemon's transforms.
        recipe: What Python does afterwards; None: it only passes the samples on.
        collate: The user's function from (samples, labels) to a batch if there is no recipe;
            None: there is none.
        target_transform: Applied to labels if there is no recipe; None: nothing is.
        raw: Samples stay as they are.
        left: What makes those samples that the daemon leaves to Python, if there is no recipe;
            None: it leaves none.
        fields: What is made of records, where Python has nothing else to do than to put their
            batches together; None: the dataset is a folder, or there is a recipe.
        batch_transform: What becomes of batches at last; None: nothing.
    """

    transforms: list[Transform]
    recipe: Recipe | None
    collate: Callable[..., object] | None
    target_transform: Callable[..., object] | None
    raw: bool
    left: Recipe | None = None
    fields: Fields | None = None
    batch_transform: BatchTransform | None = None

    @property
    def draws(self) -> bool:
        """Reports whether random numbers may be drawn.

        A random transform of the daemon's does so, and anything that Python runs may.
        """
        return self.recipe is not None or self.collate is not None or self.transforms_draw

    @property
    def transforms_draw(self) -> bool:
        """Reports whether a transform draws random numbers, or one that HDMLP does not know may."""
        if self.batch_transform is not None:
            return True
        if any(name.startswith(RANDOM) for name in names_of(self.transforms)):
            return True
        if isinstance(self.recipe, OwnItems):
            return False  # items are the program's
        if isinstance(self.recipe, FieldsRecipe):
            steps = [
                self.recipe.joint,
                *self.recipe.then,
                *(part.transform for part in self.recipe.parts),
                *_of_group(self.recipe),
            ]
            return any(may_draw(getattr(step, "steps", step)) for step in steps)
        transform = None if self.recipe is None else self.recipe.transform
        return transform is not None and may_draw(transform.steps)

    @property
    def runs_user_code(self) -> bool:
        """Reports whether a function of the user's runs for each batch."""
        return (
            self.recipe is not None or self.collate is not None or self.target_transform is not None
        )

    def runs_code_of_the_program(self) -> bool:
        """Reports whether Python runs anything that HDMLP, PIL, torchvision or timm do not define.

        Classes and functions of theirs that the program has changed count.
        """
        recipe = self.recipe
        if isinstance(recipe, OwnItems) or originals.replaced(*_USED):
            return True
        return bool(code_of_the_program(recipe))

    def own_state(self) -> str:
        """Returns which state of its own Python's part may have, for a message; empty: none."""
        assert self.recipe is not None
        replaced = originals.replaced("images", "transforms", "transforms.v2")
        if replaced:
            return replaced
        if isinstance(self.recipe, FieldsRecipe):
            return self._state_of_fields(self.recipe)
        recipe = self.recipe
        steps = () if recipe.transform is None else recipe.transform.steps
        default = recipe.stack is not None
        for step in (
            recipe.loader,
            *steps,
            recipe.target_transform,
            None if default else recipe.collate,
        ):
            why = own_state(step)
            if why:
                return (
                    f"{short(step)} may have state of its own, of which each worker would have a "
                    f"copy ({why})"
                )
        return ""

    @staticmethod
    def _state_of_fields(recipe: FieldsRecipe) -> str:
        steps = [recipe.target_transform, recipe.joint, *recipe.then, *_of_group(recipe)]
        for part in recipe.parts:
            steps += [part.load, *(() if part.transform is None else part.transform.steps)]
        if recipe.collate not in DEFAULTS:
            steps.append(recipe.collate)
        for step in steps:
            why = own_state(step)
            if why:
                return (
                    f"{short(step)} may have state of its own, of which each worker would have a "
                    f"copy ({why})"
                )
        return ""

    def identity(self, copied: bool) -> object:
        """Returns a value which is equal as long as the same is made of samples.

        Args:
            copied: Workers have copies of the user's objects, so their contents count as well,
                as far as they can be compared.
        """
        last = None if self.batch_transform is None else self.batch_transform.identity
        own: list[object] = [self.target_transform]
        if isinstance(self.recipe, OwnItems):
            return id(self.recipe.files), last
        if isinstance(self.recipe, FieldsRecipe):
            own += [self.recipe.target_transform, self.recipe.joint, *self.recipe.then]
            own += _of_group(self.recipe)
            for part in self.recipe.parts:
                own += [
                    None if isinstance(part.load, Handed) else part.load,
                    *(() if part.transform is None else part.transform.steps),
                ]
        elif self.recipe is not None:
            own += [
                self.recipe.target_transform,
                None if isinstance(self.recipe.loader, Handed) else self.recipe.loader,
                *(() if self.recipe.transform is None else self.recipe.transform.steps),
            ]
        return described(self.transforms), [_identity(value, copied) for value in own], last


def _of_group(recipe: FieldsRecipe) -> list[object]:
    """Returns the transforms that Python applies to fields jointly."""
    if recipe.group is None or recipe.group.joined is not None:
        return []
    return list(recipe.group.given)


#: What HDMLP does in the place of libraries, and which libraries' transforms use.
_USED = ("images", "transforms", "transforms.v2", "timm", "modules", "collation")


def names_of(transforms: object) -> list[str]:
    """Returns the names of the daemon's transforms, of all fields."""
    found = described(transforms) or []
    if isinstance(found, dict):
        found = [t for field in found["fields"] for t in field["transforms"] or ()]
    of_views = [t for own in found for view in own.get("views", ()) for t in view]
    return [str(t["name"]) for t in [*found, *of_views]]


def _identity(value: object, copied: bool) -> object:
    """Returns what distinguishes an object from others as long as it lives."""
    if copied:
        try:
            return pickle.dumps(value)
        except Exception:  # a closure, for instance: its identity has to do
            pass
    if isinstance(value, Relabelled):  # is made anew each time
        return value.labels, _identity(value.then, copied)
    return id(value)


def making_of_records(
    dataset: Any,
    raw: bool | None,
    labels: str,
    collate: Callable[..., object] | None,
    wanted: bool,
    say: bool,
) -> Making:
    """Returns what is made of a dataset of records; see :func:`making`."""
    plain = raw is not None and not raw and dataset.kinds is None
    if plain and not dataset._plan(False, False).parts[0].load:
        raise ConfigError(
            "raw=False: the dataset has neither a transform nor a loader: give one, or decode=True"
        )
    fields = dataset._plan(wanted, say, bool(raw))
    if labels == "name":
        fields = fields.named()
    if fields.native and collate is None:
        return Making(fields.described, None, None, None, not fields.described, fields=fields)
    recipe = fields.recipe(collate or dataset._collation())
    return Making(fields.described, recipe, None, None, False)


def making_of_items(recipe: OwnItems) -> Making:
    """Returns what is made of the files of a dataset of the program's own."""
    return Making([], recipe, None, None, False)


def making(
    dataset: Folder,
    raw: bool | None,
    labels: str,
    collate: Callable[..., object] | None,
    wanted: bool,
    say: bool,
) -> Making:
    """Returns what is made of a dataset's samples, by its transforms and the loader's arguments.

    Args:
        dataset: The folder.
        raw: Bytes (True), decoded (False), or as the dataset has it (None).
        labels: ``"index"`` or ``"name"``.
        collate: The user's; None: the default.
        wanted: The daemon does what it can.
        say: Log what it cannot do.
    """
    if isinstance(dataset, Declared):
        return making_of_items(MadeItems(dataset, collate))
    if isinstance(dataset, Listed):
        return making_of_records(dataset, raw, labels, collate, wanted, say)
    raw = bool(getattr(dataset, "raw", True)) if raw is None else raw
    target_transform = _target_transform(dataset, labels)
    if raw and collate is not None and is_default(collate):
        return Making([], None, None, target_transform or int, True)  # it collates the labels
    if raw:
        return Making([], None, collate, target_transform, True)
    load: Callable[..., object] = getattr(dataset, "loader", pil_loader)
    decodes = load is pil_loader
    transform: Callable[..., object] | None = getattr(dataset, "transform", None)
    found = offload(load, transform, wanted, say, ragged=True)
    transforms, entries = found.described, found.entries
    if found.described:
        instead = in_python(found.entries_done)
        whole = transforms if instead is None else leaving(transforms)
        if not found.rest and collate is None and found.hands != "ragged":
            left = (
                None
                if instead is None
                else Recipe(instead, None, None, torchs_default(), decodes=True)
            )
            return Making(whole, None, None, target_transform, False, left)
        load = Handed(found.hands, instead)
        transforms = whole if found.hands == "tensor" else found.for_images(instead is not None)
    recipe = Recipe(
        load,
        entries or None,
        target_transform,
        collate or torchs_default(),
        stack_into if collate is None else None,
        decodes,
        collate is None and default_stacks(),
    )
    return Making(transforms, recipe, collate, target_transform, False)


def _target_transform(dataset: Folder, labels: str) -> Callable[..., object] | None:
    then: Callable[..., object] | None = getattr(dataset, "target_transform", None)
    if labels != "name":
        return then
    names: Sequence[object]
    if isinstance(dataset, Mirror):
        names, then = dataset.named()
    else:
        names = dataset.classes
    return Relabelled(names, then)
