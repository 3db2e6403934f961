"""Images to tensors: the transforms that training scripts use, as torchvision, OpenCV and HDMLP
carry them out.

What is compared is processor time per image, over all processes of a contender, and images per
second; in the later half of the epochs, when all files are in memory.
"""

import os
import tempfile
from typing import Any

import make_dataset
import namespaces
import newest
import rounds
from recipes import DALI

from scenarios import DATA, Figures, Scenario, into_page_cache, warm_figures

#: By name: what is done to every image, as torchvision's transforms; and the size that the source
#: images have.
PIPELINES = {
    "crop": "RandomResizedCrop(224), RandomHorizontalFlip, ToTensor, Normalize",
    "center": "Resize(256), CenterCrop(224), ToTensor, Normalize",
    "augment": "RandomResizedCrop(224), RandomHorizontalFlip, TrivialAugmentWide, ToTensor, "
    "Normalize, RandomErasing(0.1)",
    "timm": "timm's create_transform(224, is_training=True)",
    "slow": "CenterCrop(32), a wait of 5 ms, ToTensor",
}

#: What the images are that are no JPEGs, by kind of dataset.
FORMATS = {"pngs": "PNGs", "webps": "WebPs"}

PIL0 = {"name": "torchvision, PIL, 0 workers", "contender": "pipeline", "workers": 0}
PIL2 = {"name": "torchvision, PIL, 2 workers", "contender": "pipeline", "workers": 2}
OPENCV = {"name": "OpenCV, 0 workers", "contender": "pipeline", "workers": 0, "opencv": True}
ONE = {"name": "HDMLP, 1 core", "contender": "hdmlp", "workers": 0, "cores": 1}
TWO = {"name": "HDMLP, 2 cores", "contender": "hdmlp", "workers": 0, "cores": 2}
FAST = {"name": "HDMLP, 1 core, fast", "contender": "hdmlp", "workers": 0, "cores": 1, "fast": True}

FILES = dict(ONE, name="HDMLP, 1 core, files", forms="off")
COEFFICIENTS = dict(ONE, name="HDMLP, 1 core, coefficients")
#: With memory for the pixels of PNGs and WebPs.
PIXEL_FILES, PIXELS = (
    dict(ONE, name=f"HDMLP, 1 core, {name}", times=10, **options)
    for name, options in (("files", {"forms": "off"}), ("pixels", {}))
)

#: With memory for what validation's first transforms make of all images.
RESULTS = dict(ONE, name="HDMLP, 1 core, results", times=4)

#: With the newest torch; HDMLP with as many workers as it starts by default for what runs in
#: Python.
NEWEST2 = {
    "name": "torch, 2 workers",
    "contender": "pipeline",
    "workers": 2,
    "python": newest.PYTHON,
}
OURS = {"name": "HDMLP", "contender": "hdmlp", "workers": None, "python": newest.PYTHON}


class Pipeline(Scenario):
    """Images in memory, decoded and augmented to float32 tensors of 3 x 224 x 224, batches of
    64."""

    columns = [
        ("cpu", "CPU/image", "{:.0f} us"),
        ("rate", "images/s", "{:,.0f}"),
        ("stall", "stall/epoch", "{:.3f} s"),
        ("resident", "resident", "{:,.0f} B"),
    ]
    memory = 1.1  # times the dataset

    def __init__(
        self,
        key: str,
        pipeline: str,
        kind: str,
        samples: int,
        epochs: int,
        targets: dict[str, float],
        contenders: list[dict[str, Any]],
    ) -> None:
        self.key = key
        self.contenders = contenders
        self._pipeline, self._kind, self._samples, self._epochs, self._targets = (
            pipeline,
            kind,
            samples,
            epochs,
            targets,
        )
        self._path = os.path.join(DATA, f"{kind}-{samples}")
        self._newest = any("python" in contender for contender in contenders)

    def prepare(self) -> None:
        if self._newest:
            self._versions = newest.versions("torch", "torchvision", "timm", "numpy", "pillow")
        self._dataset = make_dataset.make(self._kind, self._path, self._samples)
        width, height = make_dataset.SIZES[self._kind]
        self.title = (
            f"{PIPELINES[self._pipeline]} of {self._samples:,} "
            f"{FORMATS.get(self._kind, 'JPEGs')} of {width}x{height} and "
            f"{self._dataset['bytes'] / self._samples / 1e3:.0f} KB"
        )
        into_page_cache(self._path)

    def describe(self) -> Figures:
        versions = {"versions": self._versions} if self._newest else {}
        return {
            "dataset": self._dataset,
            "epochs": self._epochs,
            "pipeline": PIPELINES[self._pipeline],
            **versions,
        }

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        result = self._run(
            contender,
            {
                "path": self._path,
                "batch_size": 64,
                "epochs": self._epochs,
                "seed": 42,
                "step": 0.0,
                "world_size": 1,
                "memory": int(contender.get("times", self.memory) * self._dataset["bytes"]),
                "pipeline": self._pipeline,
            },
        )
        seconds = samples = 0
        for epochs in (rank["epochs"] for rank in result["ranks"]):
            warm = epochs[len(epochs) // 2 :]
            seconds += warm[-1]["cpu"] - epochs[len(epochs) // 2 - 1]["cpu"]
            samples += sum(epoch["samples"] for epoch in warm)
        result["figures"] = warm_figures(result)
        result["figures"]["cpu"] = seconds / samples * 1e6
        return result

    def _run(self, contender: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
        return rounds.run(contender, spec)

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        said = []
        best = next((ours["name"] for ours in (FAST, ONE, OURS) if ours["name"] in medians), None)
        for name, target in self._targets.items():
            if {name, best} <= medians.keys():
                said.append(
                    f"{best} makes {medians[name]['cpu'] / medians[best]['cpu']:.2f} times the "
                    f"images per processor "
                    f"second of {name} (wanted: {target:g})"
                )
        if {ONE["name"], TWO["name"]} <= medians.keys():
            said.append(
                f"two cores make "
                f"{medians[TWO['name']]['rate'] / medians[ONE['name']]['rate']:.2f} times the "
                f"images "
                f"per second of one (wanted: 1.85)"
            )
        return said


class Forms(Pipeline):
    """The same with room for coefficients in memory, over so many epochs that all are converted in
    the later half."""

    columns = [
        *Pipeline.columns,
        ("first", "daemon's CPU/image, first 3 epochs", "{:.0f} us"),
        ("all", "daemon's CPU/image, all epochs", "{:.0f} us"),
    ]
    memory = 1.3

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        result = super().measure(contender)
        epochs = result["ranks"][0]["epochs"]
        for name, part in (("first", epochs[:3]), ("all", epochs)):
            samples = sum(epoch["samples"] for epoch in part)
            result["figures"][name] = part[-1]["daemon_cpu"] / samples * 1e6
        return result

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return [
            f"{self.key}: with {what} an image takes {ours[key] / files[key]:.2f} of the "
            f"processor time {when}"
            for what, one in (
                ("coefficients", COEFFICIENTS),
                ("pixels", PIXELS),
                ("results", RESULTS),
            )
            for files, ours in [(medians.get(FILES["name"]), medians.get(one["name"]))]
            if files and ours
            for key, when in (("cpu", "once all are"), ("first", "in the first three epochs"))
        ]


class FormsAmongOthers(Forms):
    """The same beside torchvision and DALI."""

    columns = Pipeline.columns

    def prepare(self) -> None:
        super().prepare()
        self._versions.update(newest.peers("nvidia-dali-cuda130"))

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        return Pipeline.measure(self, contender)

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return [
            f"{self.key}: {other['name']} takes {medians[other['name']]['cpu'] / ours['cpu']:.1f} "
            f"times the processor time of {one['name']}"
            for one in (FILES, COEFFICIENTS)
            for ours in [medians.get(one["name"])]
            for other in (NEWEST2, DALI)
            if ours and other["name"] in medians
        ]


class FormsOfNodes(Forms):
    """The same on two nodes with a rank each, each sample kept by one of them: half of what a rank
    needs comes from the other node."""

    columns = [*Forms.columns, ("sent", "coefficients sent/epoch", "{:,.0f}")]

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        result = super().measure(contender)
        classes = result["ranks"][0]["report"]["classes"]
        sent = sum(one.get("forms", {}).get("sent", 0) for one in classes)
        result["figures"]["sent"] = sent / self._epochs
        return result

    def _run(self, contender: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
        own = {"world_size": 2, "batch_size": 32, "cluster": True, "policy": "lbann_dynamic"}
        with namespaces.Nodes(2) as nodes:
            return rounds.run(contender, spec | own, nodes=nodes)


#: By how many times the dataset memory has room for.
MEMORY = (0.5, 1, 1.3, 2, 4)


class FormsByMemory(Forms):
    """Coefficients beside files, by how much memory there is."""

    columns = [
        *Pipeline.columns[:2],
        ("read", "read/dataset", "{:.2f}"),
        ("forms", "coefficients/dataset", "{:.2f}"),
    ]

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        result = super().measure(contender)
        report = result["ranks"][0]["report"]
        result["figures"]["read"] = report["source"]["bytes"] / self._dataset["bytes"]
        held = sum(one.get("forms", {}).get("samples", 0) for one in report["classes"])
        result["figures"]["forms"] = held / self._samples
        return result

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        said = []
        for times in MEMORY:
            files, ours = (medians.get(f"{one['name']}, {times}x") for one in (FILES, COEFFICIENTS))
            if files and ours:
                said.append(
                    f"with memory for {times} times the dataset an image takes "
                    f"{ours['cpu'] / files['cpu']:.2f} of the processor time, and "
                    f"{ours['read'] / files['read']:.3f} of the bytes of the source"
                )
        return said


class FormsOfFiles(FormsByMemory):
    """The same in a cache directory, with almost no memory."""

    columns = [*Forms.columns, *FormsByMemory.columns[2:]]
    memory = 0.01

    def _run(self, contender: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(dir=DATA) as cache:
            return rounds.run(contender, spec | {"cache_dir": cache})

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return Forms.conclusions(self, medians)


def all_pipelines(quick: bool) -> list[Scenario]:
    """The scenarios."""
    rows = [
        # key, pipeline, images, their number, and if quick, targets, contenders
        ("e", "crop", "photos", 2000, 500, {PIL0["name"]: 2.2, OPENCV["name"]: 1.5},
         [PIL0, PIL2, OPENCV, ONE, TWO]),
        ("f", "center", "photos", 2000, 500, {PIL0["name"]: 2.2}, [PIL0, OPENCV, ONE, TWO]),
        ("g", "crop", "large", 300, 128, {PIL0["name"]: 4}, [PIL0, OPENCV, ONE, FAST]),
        ("m", "center", "pngs", 1000, 200, {PIL0["name"]: 2}, [PIL0, OPENCV, ONE]),
        ("n", "center", "webps", 1000, 200, {PIL0["name"]: 1.5}, [PIL0, OPENCV, ONE]),
        ("o", "crop", "photos", 600, 200, {NEWEST2["name"]: 4}, [NEWEST2, OURS]),
        ("p", "augment", "photos", 600, 200, {NEWEST2["name"]: 2}, [NEWEST2, OURS]),
        ("q", "timm", "photos", 600, 200, {NEWEST2["name"]: 1.2}, [NEWEST2, OURS]),
    ]  # fmt: skip
    epochs = 2 if quick else 4
    return [
        Pipeline(key, pipeline, kind, few if quick else many, epochs, targets, contenders)
        for key, pipeline, kind, many, few, targets, contenders in rows
    ]


def all_forms(quick: bool) -> list[Scenario]:
    """Those that compare coefficients with files."""
    contenders, epochs = [FILES, COEFFICIENTS], 8 if quick else 24
    return [
        Forms(f"forms/{kind}", "crop", kind, few if quick else many, epochs, {}, contenders)
        for kind, many, few in (("photos", 600, 200), ("large", 300, 128))
    ] + [
        Forms(
            f"forms/{kind}", "crop", kind, 200 if quick else 600, epochs, {}, [PIXEL_FILES, PIXELS]
        )
        for kind in FORMATS
    ] + [
        Forms(
            f"forms/validation{suffix}", "center", kind, 200 if quick else 600, 2 * epochs, {},
            compared,
        )
        for suffix, kind, compared in (
            ("", "photos", [*contenders, RESULTS]), ("-pngs", "pngs", [PIXEL_FILES, RESULTS]),
        )
    ] + [
        FormsAmongOthers(
            "forms/peers", "crop", "photos", 200 if quick else 600, epochs, {},
            [NEWEST2, DALI, *(dict(one, python=newest.PYTHON) for one in contenders)],
        ),
        FormsByMemory(
            "forms/memory", "crop", "photos", 200 if quick else 600, epochs, {},
            [dict(one, name=f"{one['name']}, {times}x", times=times)
             for times in MEMORY for one in contenders],
        ),
        FormsOfNodes(
            "forms/nodes", "crop", "photos", 200 if quick else 600, epochs, {}, contenders
        ),
        FormsOfFiles(
            "forms/ssd", "crop", "photos", 200 if quick else 600, epochs, {}, contenders
        ),
    ]  # fmt: skip
