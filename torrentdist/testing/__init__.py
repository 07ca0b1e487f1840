"""What a third party needs to test a plug-in: the conformance suite."""
