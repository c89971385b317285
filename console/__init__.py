"""Everything HTTP: settings, REST API, pages, uploads and live streams."""
