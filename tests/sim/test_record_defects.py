import pytest

from tests.sim.mutations import Defect
from tests.sim.record_defects import COMPARED, CONSEQUENCES, RECOVERIES, TRAITS
from tests.sim.test_mutations import seeds_until_found


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", CONSEQUENCES, ids=lambda defect: str(defect.__name__))
def test_a_defect_of_the_records_is_found_by_what_follows_from_it(defect: Defect) -> None:
    assert seeds_until_found(defect, compares=False, traits=TRAITS.get(str(defect.__name__), RECOVERIES))


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", COMPARED, ids=lambda defect: str(defect.__name__))
def test_a_defect_of_the_records_is_found_by_comparison(defect: Defect) -> None:
    assert seeds_until_found(defect, traits=TRAITS.get(str(defect.__name__), RECOVERIES))
