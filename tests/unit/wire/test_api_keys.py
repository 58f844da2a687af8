"""The names of keys are those of the table of APIs."""

import re

from ottla.wire.api_keys import ApiKey
from ottla.wire.apis import APIS


def test_every_row_has_its_name_and_nothing_else_has():
    upper = {
        key: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api.name).upper() for key, api in APIS.items()
    }
    assert {key.value: key.name for key in ApiKey} == upper
