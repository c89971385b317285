"""``flotilla demo``: three small real models, uploaded, approved, deployed and kept busy."""
