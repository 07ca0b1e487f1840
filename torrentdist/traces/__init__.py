"""Traces for OpenTelemetry: which spans show a bundle's way, and how they are sent."""
