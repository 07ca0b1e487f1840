"""Who sends a request, and in which role.

Certificates, tokens and signatures will join this module here.
"""
