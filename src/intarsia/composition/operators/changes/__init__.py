"""Operators on what training changed: task vectors, whole or tensor by tensor."""
