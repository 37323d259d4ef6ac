"""The only place where stages meet: one module a stage, one function that makes its unit.

`graph` says which units a study has and what each hangs on; `execute` brings them about, in order or side by side;
`material` is what trainings share.
"""

__all__: list[str] = []
