import pytest

from tests.sim.mutations import Defect
from tests.sim.record_defects import COMPARED, CONSEQUENCES
from tests.sim.test_mutations import seeds_until_found

DEADLINE = 200


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", CONSEQUENCES, ids=lambda defect: str(defect.__name__))
def test_a_defect_of_the_records_is_found_by_what_follows_from_it(defect: Defect) -> None:
    assert seeds_until_found(defect, DEADLINE, compares=False)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", COMPARED, ids=lambda defect: str(defect.__name__))
def test_a_defect_of_the_records_is_found_by_comparison(defect: Defect) -> None:
    assert seeds_until_found(defect, DEADLINE)
