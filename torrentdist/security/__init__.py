"""The sender of a request and its role. Certificates, tokens and signatures will join this
module."""
