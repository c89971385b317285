"""What a console holds as documents: read from it, compared with files, made so."""
