"""The class proportions on the report page of a run that estimated them."""

import numpy as np
import pytest
from report_pages import page_of, text_of
from worlds import RUNTIME, trained

from openworld.core.fields import replace
from openworld.core.recipes import digits
from openworld.results.report.collect import collect

TINY = replace(
    digits("digits"),
    {"steps": 6, "epoch_steps": 2, "batch_labelled": 8, "batch_unlabelled": 16, "uncertainty_views": 2},
)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["estimated", "even"])
def test_an_estimated_prior_is_drawn_over_the_steps(prior, tmp_path):
    run = trained(str(tmp_path / "r"), replace(TINY, {"prior": prior}))
    text = text_of(page_of(run))
    assert ("Estimated proportion (%)" in text) == (prior == "estimated")
    assert ("as training estimated it in the end" in text) == (prior == "estimated")
    assert ("as assumed before training" in text) == (prior == "even")
    priors = collect(run, RUNTIME, print).priors
    assert list(priors) == ([0, 2, 4, 6] if prior == "estimated" else [0])
    if prior == "estimated":
        np.testing.assert_allclose(priors[6], run.metrics()[-1]["prior"], rtol=1e-5)
