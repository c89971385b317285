"""Decisions as pure functions of facts and time: no database, no clock, no framework."""
