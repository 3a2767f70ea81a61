"""What the lessons import, each module with one job: see its name.

This package itself imports nothing, so that ``python -m helpers.<module>`` starts at once.
"""
