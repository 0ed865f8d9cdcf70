"""What a workflow file means. Pure: text and values in, values or mistakes out.

Reading a file:   document (text → nodes with places, bounded) → grammar (nodes → ``spec``, by
                  shapes) → checks (do the parts fit?) → ``parse`` gathers all mistakes.
                  ``schema`` describes the same grammar to editors, ``dump`` writes a workflow back.
Before a run:     ``plan`` (which step runs where and after what; ``inventory``), ``defined`` (which
                  variables it must be given; ``sources``).
Per host:         ``variables`` (what it sees), ``expressions`` (``when``, ``${{ }}``; in the
                  ``sandbox``), ``render`` (arguments; ``shell`` and ``python_text`` know where
                  in a script a value may stand; ``environment`` how it gets there).

``spec``, ``plan`` and ``catalogue`` need neither YAML nor Jinja.
"""
