"""Tells people and programs what they asked to be told: once when it happens, once when it is over; never what nobody saw."""
