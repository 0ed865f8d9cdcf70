"""What a workflow file means. Pure: text and values in, values or mistakes out.

Reading a file:   ``yaml`` (text to nodes with places, bounded), ``schema`` (nodes to ``spec``; also
                  the JSON Schema for editors), ``checks`` (do the parts fit?), ``parse`` (all
                  mistakes together).
Before a run:     ``plan`` (which step runs where and after what; ``inventory``), ``undefined``
                  (which variables it must be given).
Per host:         ``arguments`` (rendering), ``expressions`` (``when``, ``${{ }}``; in the
                  ``sandbox``), ``templates``, ``scripts`` (where a value may stand in a script),
                  ``environment`` (how values get there).

``spec``, ``plan`` and ``catalogue`` need neither YAML nor Jinja.
"""
