"""Loops and conditions of small graphs, known by hand."""

from __future__ import annotations

from helpers.control_flow import ControlFlow


def test_a_straight_line_has_neither_loops_nor_conditions():
    flow = ControlFlow([(1,), (2,), ()])
    assert flow.loops == {}
    assert [flow.conditions(b) for b in range(3)] == [frozenset()] * 3


def test_the_arms_of_a_branch_depend_on_it_and_what_follows_does_not():
    flow = ControlFlow([(1, 2), (3,), (3,), ()])
    assert [flow.conditions(b) for b in range(4)] == [set(), {0}, {0}, set()]


def test_conditions_add_up():
    flow = ControlFlow([(1, 3), (2, 3), (3,), ()])
    assert flow.conditions(2) == {0, 1}


def test_an_early_end_is_a_condition_of_all_that_follows():
    flow = ControlFlow([(-1, 1), (2,), ()])
    assert flow.conditions(1) == flow.conditions(2) == {0}


def test_loops_nest():
    flow = ControlFlow([(1,), (2,), (2, 3), (1, 4), ()])
    assert flow.loops == {1: {1, 2, 3}, 2: {2}}
    assert [flow.depth(b) for b in range(5)] == [0, 1, 2, 1, 0]
    assert [flow.innermost_loop(b) for b in range(5)] == [None, 1, 2, 1, None]


def test_the_branch_that_repeats_a_loop_is_no_condition():
    flow = ControlFlow([(1,), (1, 2), ()])
    assert flow.conditions(1) == flow.conditions(2) == frozenset()
    assert flow.steers_a_loop(1) and not flow.steers_a_loop(0)


def test_the_branch_around_a_loop_is_a_condition():
    flow = ControlFlow([(1, 2), (1, 2), ()])
    assert flow.conditions(1) == {0}


def test_a_block_that_never_ends_has_unknown_conditions():
    flow = ControlFlow([(1, 2), (1,), ()])
    assert flow.conditions(1) is None
    assert flow.conditions(2) == frozenset()


def test_a_block_that_is_not_reached_has_unknown_conditions():
    flow = ControlFlow([(2,), (2,), ()])
    assert flow.conditions(1) is None


def test_reaching_goes_round_a_block_but_not_through_it():
    flow = ControlFlow([(1,), (2, 3), (3,), ()])
    assert flow.reaches(0, {3}, without=2)
    assert not flow.reaches(0, {2}, without=1)
