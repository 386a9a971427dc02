"""`octavo status | history | rollback | pin | render | diff`: for people, with their own rights.

Each is found by an entry point of the group `octavo.commands`; `kubectl octavo …` is the same program.
"""
