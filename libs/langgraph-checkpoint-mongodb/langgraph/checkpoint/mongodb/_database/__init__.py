"""How the driver is called. Knows nothing of LangGraph."""
