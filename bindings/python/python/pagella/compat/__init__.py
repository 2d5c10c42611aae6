"""Packages that programs were written for, with Pagella underneath."""
