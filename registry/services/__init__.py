"""Every write: ``<noun>_<verb>(*, ..., actor)``: checks permission, moves state by table, writes an audit row."""
