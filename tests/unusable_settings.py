"""Settings that operators refuse, by how they are written, and what the error says."""

# Whoever reads them sees it, without a module to join.
UNUSABLE = {
    "sum(affine='median')": "^sum has no affine 'median': did you mean 'mean'",
    "sum(affine='x')": "^sum has no affine 'x'",
    "ties(preset='pefd')": "^ties has no preset 'pefd': did you mean 'peft'",
    "ties(preset='another')": "^ties has no preset 'another'",
    "ties(density=1.5)": "^ties: density is 1.5: expected a fraction from 0 to 1",
    "ties(density='all')": "^ties: density is 'all': expected a number",
    "ties(preset='mergekit', density='x')": "^ties: density is 'x'",
    "ties(elect='masse')": "^ties has no elect 'masse': did you mean 'mass'",
    "ties(scale=1e999)": "^ties: scale is inf: expected a number",
    "dare(consensus='vote')": "^dare has no consensus 'vote': known: sum, ties",
    "dare(preset=3, consensus='ties')": "^dare has no preset 3",
}

# The operator sees it when it joins three modules, of which one is called a.
REFUSED_IN_JOINING = {
    "weighted(0, normalise=True)": r"weights \[0.0, 0.0, 0.0\] add up to 0",
    "dare(density=0)": "^dare: density is 0: expected a fraction above 0 to 1",
    "dare(density={'a': 1.5})": "^dare: density is 1.5: expected a fraction above 0 to 1",
    "ties(density='most')": "^ties: density is 'most': expected a number",
    "dare(seed=0.5)": "^dare: seed is 0.5: expected a whole number",
    "dare(rescale=1)": "^dare: rescale is 1: expected true or false",
    "task_arithmetic(base='one')": "has no base 'one': known: origin, zero",
    "task_arithmetic(scale='much')": "scale is 'much': expected a number",
    "fisher(weights={'a': -1})": r"weights are \[-1.0, 1.0, 1.0\]: expected numbers above 0",
    "fisher(floor=0)": "^fisher: floor is 0: expected a number above 0",
    "regmean(alpha=2)": "^regmean: alpha is 2: expected a fraction from 0 to 1",
    "slerp(t=2)": "slerp: t is 2: expected a fraction from 0 to 1",
    "karcher(steps=-1)": "karcher: steps is -1: expected 0 or more",
    "karcher(tolerance=0)": "karcher: tolerance is 0: expected a number above 0",
    "karcher(weights=0)": "karcher: the weights .* add up to 0",
    "multislerp(weights={'a': -2})": "multislerp: the weights .* add up to 0",
    "breadcrumbs(density=0)": "breadcrumbs: density is 0: expected a fraction above 0",
    "breadcrumbs(gamma=-1)": "breadcrumbs: gamma is -1: expected a fraction from 0 to 1",
    "breadcrumbs(consensus='vote')": "breadcrumbs has no consensus 'vote'",
    "della(density=2)": "della: density is 2: expected a fraction",
    "della(density=0.5, epsilon=0.5)": "della: epsilon is 0.5 with density 0.5: .* below 0.5",
    "della(epsilon=-0.1)": "della: epsilon is -0.1",
    "sce(density=0)": "sce: density is 0: expected a fraction above 0 to 1",
    "model_stock(by_unit=1)": "model_stock: by_unit is 1: expected true or false",
    "tsvm(base='one')": "tsvm has no base 'one': known: origin, zero",
    "iso_c(scale='much')": "scale is 'much': expected a number",
}
