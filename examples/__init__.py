"""What a newcomer copies."""
