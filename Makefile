# Thin names for the commands; .ci/run is what decides.
.PHONY: setup check test slow figures format

setup:
	bash .ci/setup

check:
	bash .ci/run

test: setup
	.venv/bin/python -m pytest -n 2 --dist loadfile -m "not slow"

slow: setup
	.venv/bin/python -m pytest -n 2 --dist loadfile -m slow --timeout=1800

figures: setup
	.venv/bin/python benchmarks/figures.py --out out/figures

format: setup
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .
