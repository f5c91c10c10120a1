"""The command line: flags -> Config -> one verb of tfbert; errors -> a line each and an exit status."""
