"""The shadow-model attack of Shokri et al.: a classifier per class tells members' prediction vectors from others'."""

from __future__ import annotations

import torch
from torch import Tensor


def shokri(
    predictions: Tensor, targets: Tensor, shadow_predictions: Tensor, shadow_targets: Tensor, keep: Tensor
) -> Tensor:
    """Log-odds of membership (n,) (Shokri et al. 2017, arXiv:1610.05820, section V).

    One logistic regression a class learns from all shadows' predictions on that class's records. The scores are
    log-odds, because probabilities round to 1 for the records that matter.

    Args:
        predictions: (n, C), the attacked model's probabilities on the candidates. targets: (n,), their labels.
        shadow_predictions: (S, m, C), the shadows' probabilities on the attacker's records. shadow_targets: (m,).
        keep: (S, m) bool, True where shadow s trained on record i.

    Raises:
        ValueError: a candidate's class has no members, or no others, among the shadows' records.
    """
    # the imports stand here because scikit-learn's models take longer to load than everything else in this package
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    scores = torch.empty(len(targets), dtype=torch.float64)
    for label in targets.unique().tolist():
        rows = shadow_targets == label
        inside = keep[:, rows].flatten()
        if not inside.any() or inside.all():
            missing = "members" if not inside.any() else "non-members"
            raise ValueError(
                f"class {label} has no {missing} among the shadow models' records, so no attack model can be fitted for"
                " it; add records of it"
            )
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        model.fit(shadow_predictions[:, rows].flatten(0, 1).double().numpy(), inside.numpy())
        of_class = targets == label
        scores[of_class] = torch.from_numpy(model.decision_function(predictions[of_class].double().numpy()))
    return scores
