"""What is stored: documents, their keys and fields, and how values lie in them. No I/O."""
