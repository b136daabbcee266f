# Thin names for the commands; .ci/run and .ci/full are what decides.
.PHONY: setup check full test slow figures format

setup:
	bash .ci/setup

check:
	bash .ci/run

full:
	bash .ci/full

test: setup
	.venv/bin/python -m pytest -n 2 --dist loadfile -m "not slow"

slow: setup
	.venv/bin/python -m pytest -n 2 --dist loadfile -m slow --timeout=1800

figures: setup
	.venv/bin/python benchmarks/figures.py --out out/figures

format: setup
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .
