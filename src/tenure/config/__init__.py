"""Settings, read once: ``tenure.toml`` < environment ``TENURE_…`` < flags.

The file of the user's config directory counts less than the one in the working directory. Every
value remembers where it came from, so that a wrong one can be found. All problems are reported
together; a key nobody knows is one of them, since a typo that is ignored would be the default in
disguise.

``settings`` is what there is, ``values`` what may be written for each, ``files`` where they stand,
``loading`` puts them together.
"""

from __future__ import annotations

from tenure.config.files import FILE_NAME, data_folder, setting_files
from tenure.config.loading import PREFIX, broken_rule, load_settings
from tenure.config.settings import DEFAULT, JSON_LOGS, InvalidSettings, Settings
from tenure.config.values import READERS, shown_value

__all__ = [
    "DEFAULT",
    "FILE_NAME",
    "JSON_LOGS",
    "PREFIX",
    "READERS",
    "InvalidSettings",
    "Settings",
    "broken_rule",
    "data_folder",
    "load_settings",
    "setting_files",
    "shown_value",
]
