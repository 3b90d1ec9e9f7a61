"""Instance metadata services of AWS and Azure, and the termination notices they announce."""
