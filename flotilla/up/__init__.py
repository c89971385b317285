"""``flotilla up``: the whole product on one machine, started in order, watched, restarted, stopped in order."""
