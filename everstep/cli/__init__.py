"""The `everstep` command: it drives Pulumi and the twin through their own interfaces."""
