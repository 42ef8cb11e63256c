"""A folder for `sys.path`, in which `import stomp` finds stompy.compat."""
