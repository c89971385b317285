"""Every read. ``*_visible_to(actor)`` filter by membership; other functions take what the caller already may see."""
