"""The convergence bounds and optima of the papers behind the schemes, one module and one class of constants a paper
(or chapter).

A formula is a method of its paper's constants and returns a `FormulaValue`: its value and the assumptions that do not
hold at these numbers. Where a paper contradicts itself a `reading` argument says which version is meant. The
`recommend_…` methods return a `Recommendation`: the setting where the bound is smallest. None of this is privacy
accounting, and none of it was measured on a model.
"""
