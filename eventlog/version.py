"""The version of this build; the package's metadata is made from this line."""

VERSION = "0.1.0.dev0"
