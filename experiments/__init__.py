"""What the programs share: from flags to runs, and to the files they leave."""
