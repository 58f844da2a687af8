"""The pages: each asks an operation of other rooms and names the template that shows it."""
