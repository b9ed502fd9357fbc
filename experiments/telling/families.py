"""Settings that belong together: they differ in some columns alone, or agree in some."""

from collections.abc import Collection, Sequence

from experiments.telling.setting import Setting


def families(pages: Sequence[Setting], apart: Collection[str]) -> list[list[Setting]]:
    """Settings that differ in the columns ``apart`` alone, in the order given."""
    return together(pages, [name for name in pages[0].values if name not in apart]) if pages else []


def together(pages: Sequence[Setting], columns: Sequence[str]) -> list[list[Setting]]:
    """Settings that have the same values in some columns, in the order given."""
    groups: dict[str, list[Setting]] = {}
    for page in pages:
        groups.setdefault(repr([page.values[column] for column in columns]), []).append(page)
    return list(groups.values())


def related(page: Setting, other: Setting, apart: Collection[str] = ("batch", "tp")) -> bool:
    """Whether two settings are of one family: by default of one machine and model."""
    return all(page.values[name] == other.values[name] for name in page.values if name not in apart)
