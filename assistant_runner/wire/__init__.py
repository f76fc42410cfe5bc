"""The objects of Assistants v2, once: our client and our service both use them.

Field for field as the protocol's schema has them; the reference's sections are named in each module.
"""
