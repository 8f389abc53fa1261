"""A checkpoint saver of LangGraph's, wrapped so that the messages it stores stay bounded."""

from .saver import ReducingSaver, apply_reducer, memory_namespace

__all__ = ["ReducingSaver", "apply_reducer", "memory_namespace"]
