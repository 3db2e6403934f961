"""Notes which files the items of a script's map-style datasets are made of.

Nothing of a program is changed but that the fetchers of torch's loader, and what makes items in
hdmlp's, get a dataset around the dataset, which calls it; and ``open`` is wrapped while one of the
items that are looked at is made.
"""

from __future__ import annotations

from hdmlp_analyze import channel, importing


def install() -> None:
    """Begins to wait for the modules that make items."""
    from . import items

    channel.tell_started()
    importing.watch(
        {
            "torch.utils.data.dataloader": items.change_loader,
            "torch.utils.data._utils.fetch": items.change_fetcher,
            "hdmlp.torch._data.items": items.change_items,
        }
    )
