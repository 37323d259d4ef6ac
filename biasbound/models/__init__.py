"""What is trained and used."""
