"""Stand-ins for third-party packages that SGLang imports and a machine without a GPU lacks: one module per package."""
