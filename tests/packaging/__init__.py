"""What is published: what it declares, what it holds, and that it runs outside a clone."""
